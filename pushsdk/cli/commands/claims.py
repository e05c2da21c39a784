"""``pushsdk claims list``, ``count`` and ``release``: sends with an idempotency key that have claimed users."""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, TypeVar

from cyclopts import Group, Parameter

from pushsdk import ConfigurationError, PushError
from pushsdk._core import words
from pushsdk.claims import SERVERS, ClaimStore, _operators, store_at
from pushsdk.claims._operators import ClaimedSend
from pushsdk.claims.store import PAGE, StoreError
from pushsdk.cli.exit import CommandError, Exit, text_of, usage_error
from pushsdk.cli.options import Json, JsonLines, Yes
from pushsdk.cli.output import print_figures
from pushsdk.cli.terminal import ask, duration, print_json, say, warn

T = TypeVar("T")
_LOCATIONS = "sqlite:PATH, redis://HOST, postgresql://HOST/DATABASE or s3://BUCKET/PREFIX"
KEY = re.compile(r"[0-9a-f]{64}")
OlderThan = Annotated[timedelta | None, Parameter(help="Select sends claimed at least this long ago: 90s, 15m, 2d.")]


@Parameter(name="*", group=Group("Store", sort_key=10))
@dataclass(frozen=True, kw_only=True)
class StoreOptions:
    """The claim store."""

    claims: Annotated[str, Parameter(env_var="PUSHSDK_CLAIMS", help=f"Set the store: {_LOCATIONS}.")]
    prefix: str = "pushsdk:claim:"
    """Set the key prefix in Redis."""
    table: str = "pushsdk_claims"
    """Set the table in PostgreSQL."""

    def open(self) -> ClaimStore:
        """Return the store. Raises a usage error for an unknown kind or a missing file."""
        kind, _, path = self.claims.partition(":")
        if kind not in ("sqlite", *SERVERS) or not path:
            shown = f"{kind}:..." if kind.isalpha() and path else "another text"  # the rest may hold a password
            raise usage_error(f"--claims must be {_LOCATIONS}; got {shown}")
        # A typing error would make an empty store, in which nothing is claimed.
        if kind == "sqlite" and not Path(path).exists():
            raise usage_error(f"{path}: no such claim store")
        names = {"RedisClaims": {"prefix": self.prefix}, "PostgresClaims": {"table": self.table}}
        try:
            return store_at(self.claims, **names.get(SERVERS.get(kind, ""), {}))
        except ConfigurationError as error:
            raise usage_error(f"--claims: {text_of(error)}") from None


def list_claims(*, store: StoreOptions, older_than: OlderThan = None, json: JsonLines = False) -> int:
    """List the sends with claimed users, newest last: in flight, from a dead process, or with an unknown outcome."""
    now = time.time()
    sends = with_store(store.open, lambda opened: _claimed_sends(opened, older_than))
    if sends and not json:
        say(f"{'claimed at':<20}  {'age':>9}  {'users':>7}  key")
    for send in sends:
        claimed_at = datetime.fromtimestamp(send.since, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        age = max(0.0, now - send.since)
        if json:
            print_json({"key": send.key, "claimed_at": claimed_at, "age": round(age), "users": send.users})
        else:
            say(f"{claimed_at}  {duration(age):>9}  {send.users:>7,}  {send.key}")
    if not sends:
        warn("nothing is claimed")
    return Exit.DONE


def count(*, store: StoreOptions, older_than: OlderThan = None, json: Json = False) -> int:
    sends = with_store(store.open, lambda opened: _claimed_sends(opened, older_than))
    counts = {"sends": len(sends), "users": _users_of(sends)}
    if json:
        print_json(counts)
    else:
        print_figures((name, f"{number:,}", "", "") for name, number in counts.items())
    return Exit.DONE


def release(*keys: str, store: StoreOptions, older_than: OlderThan = None, yes: Yes = False) -> int:
    """Release claimed users: the next delivery pushes to them, perhaps a second time.

    Args:
        keys: The keys of the sends, as claims list prints them.
    """
    sends = _chosen(keys, older_than, store)
    users = _users_of(sends)
    if sends and not yes:
        ask(
            f"Release {words.count(users)} of {words.count(len(sends), 'send')}? Users who were pushed before may "
            "get the push a second time, with the next delivery.",
            declined="nothing was changed",
        )
    changed = with_store(store.open, lambda opened: _operators.release(opened, sends))
    if changed:
        warn(f"{words.count(len(changed), 'send')} changed meanwhile and stayed claimed: list the claims again")
    users -= _users_of(changed)
    say(f"released {words.count(users)} of {words.count(len(sends) - len(changed), 'send')}")
    return Exit.INCOMPLETE if changed or len(sends) < len(set(keys)) else Exit.DONE


def _chosen(keys: tuple[str, ...], older_than: timedelta | None, store: StoreOptions) -> list[ClaimedSend]:
    """Return the sends with these keys, or the old ones. Raises a usage error."""
    if bool(keys) is (older_than is not None):
        raise usage_error("pass either keys or --older-than")
    if not keys:
        return with_store(store.open, lambda opened: _claimed_sends(opened, older_than))
    for key in keys:
        if not KEY.fullmatch(key):
            raise usage_error(f"{key}: a key must be 64 hexadecimal digits, as pushsdk claims list prints them")
    sends = with_store(store.open, lambda opened: _sends_of(opened, keys))
    for key in set(keys).difference([send.key for send in sends]):
        warn(f"{key}: nothing is claimed")
    return sends


def _users_of(sends: Iterable[ClaimedSend]) -> int:
    return sum(send.users for send in sends)


async def _claimed_sends(store: ClaimStore, older_than: timedelta | None) -> list[ClaimedSend]:
    return await _operators.claimed(store, older_than=older_than.total_seconds() if older_than else 0.0)


async def _sends_of(store: ClaimStore, keys: tuple[str, ...]) -> list[ClaimedSend]:
    distinct, sends = list(dict.fromkeys(keys)), []
    for first in range(0, len(distinct), PAGE):
        page = distinct[first : first + PAGE]
        pairs = zip(page, await store.get(page), strict=True)
        sends += [_operators.claimed_in(key, claim) for key, claim in pairs if claim is not None]
    return [send for send in sends if send is not None]


def with_store(make: Callable[[], ClaimStore], operation: Callable[[ClaimStore], Awaitable[T]]) -> T:
    """Return a store operation's result. Not for questions: Ctrl-C would not end one at once."""

    async def run() -> T:
        async with make() as store:
            return await operation(store)

    try:
        return asyncio.run(run())
    except (PushError, CommandError):
        raise
    except StoreError as error:
        raise CommandError(f"the claim store failed: {error}", Exit.CANNOT_RUN) from None
    except Exception as error:  # noqa: BLE001 - a driver's text may hold the address
        raise CommandError(f"the claim store failed ({type(error).__name__})", Exit.CANNOT_RUN) from None
