"""``pushsdk claims list``, ``count`` and ``release``: sends with a idempotency key that are claimed and not settled."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, TypeVar

from cyclopts import Group, Parameter

from pushsdk import PushError
from pushsdk._core.words import count as counted
from pushsdk.claims import ClaimStore, DirectoryClaims, PostgresClaims, RedisClaims, SqliteClaims
from pushsdk.claims._operators import ClaimedSend, claimed, claimed_in
from pushsdk.claims._operators import release as released
from pushsdk.claims.postgres import SCHEMES as POSTGRES
from pushsdk.claims.redis import SCHEMES as REDIS
from pushsdk.claims.store import PAGE
from pushsdk.cli.exit import CommandError, Exit, usage
from pushsdk.cli.options import Flag
from pushsdk.cli.output import duration, print_figures
from pushsdk.cli.terminal import ask, print_json, say, warn

__all__ = ["count", "list_claims", "release"]

T = TypeVar("T")

FILES = {"sqlite": SqliteClaims, "directory": DirectoryClaims}
KEY = re.compile(r"[0-9a-f]{64}")


@Parameter(name="*", group=Group("Store", sort_key=10))
@dataclass(frozen=True, kw_only=True)
class Place:
    """The claim store."""

    claims: Annotated[str, Parameter(env_var="PUSHSDK_CLAIMS")]
    """sqlite:PATH, directory:PATH, redis://HOST or postgresql://HOST/DATABASE. A password belongs in the variable."""
    prefix: str = "pushsdk:claim:"
    """The prefix of the keys in Redis."""
    table: str = "pushsdk_claims"
    """The table in PostgreSQL."""


def list_claims(*, place: Place, older_than: timedelta = timedelta(), json: Flag = False) -> int:
    """List the sends with claimed users, the newest last: in flight, or their process died, or the outcome is unknown.

    Parameters
    ----------
    older_than
        Only those claimed so long ago, as 90s, 15m, 1h or 2d.
    json
        Print one JSON object for each.
    """
    now = time.time()
    sends = _asked(place, lambda store: _found(store, older_than))
    if sends and not json:
        say(f"{'claimed at':<20}  {'age':>9}  {'users':>7}  key")
    for send in sends:
        at = datetime.fromtimestamp(send.since, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        age = max(0.0, now - send.since)
        if json:
            print_json({"key": send.key, "claimed_at": at, "age": round(age), "users": send.users})
        else:
            say(f"{at}  {duration(age):>9}  {send.users:>7,}  {send.key}")
    if not sends:
        warn("nothing is claimed")
    return Exit.DONE


def count(*, place: Place, older_than: timedelta = timedelta(), json: Flag = False) -> int:
    """Count the sends with claimed users, and these users.

    Parameters
    ----------
    older_than
        Only those claimed so long ago, as 90s, 15m, 1h or 2d.
    json
        Print one JSON object.
    """
    sends = _asked(place, lambda store: _found(store, older_than))
    counts = {"sends": len(sends), "users": sum(send.users for send in sends)}
    if json:
        print_json(counts)
    else:
        print_figures((name, f"{number:,}", "", "") for name, number in counts.items())
    return Exit.DONE


def release(*keys: str, place: Place, older_than: timedelta | None = None, yes: Flag = False) -> int:
    """Open claimed users, so that the next delivery of their job sends to them. They may get the push a second time.

    Do this for sends whose process died, never for one that is still in flight.

    Parameters
    ----------
    keys
        Keys, as pushsdk claims list prints them.
    older_than
        Instead of keys, all sends claimed so long ago, as 90s, 15m, 1h or 2d.
    yes
        Do not ask.
    """
    if bool(keys) is (older_than is not None):
        raise usage("name keys, or give --older-than: not both, and not nothing")
    if wrong := [key for key in keys if not KEY.fullmatch(key)]:
        raise usage(f"{wrong[0]}: a key is 64 hexadecimal digits, as pushsdk claims list prints them")

    async def work(store: ClaimStore) -> int:
        sends = await (_found(store, older_than) if older_than is not None else _of_keys(store, keys))
        users = sum(send.users for send in sends)
        for key in set(keys) - {send.key for send in sends}:
            warn(f"{key}: nothing is claimed")
        if sends:
            ask(
                f"Open {counted(users)} of {counted(len(sends), 'send')}? Whoever was pushed before may get the push a "
                "second time, with the next delivery.",
                yes=yes,
                nothing="nothing was changed",
            )
        changed = await released(store, sends)
        if changed:
            warn(f"{counted(len(changed), 'send')} changed meanwhile, and stayed as they are now: look again")
        users -= sum(send.users for send in changed)
        say(f"opened {counted(users)} of {counted(len(sends) - len(changed), 'send')}")
        return Exit.INCOMPLETE if changed or len(sends) < len(set(keys)) else Exit.DONE

    return _asked(place, work)


async def _found(store: ClaimStore, older_than: timedelta) -> list[ClaimedSend]:
    # By key, as a store may list one twice.
    sends = {send.key: send async for send in claimed(store, older_than=older_than.total_seconds())}
    return sorted(sends.values(), key=lambda send: send.since)


async def _of_keys(store: ClaimStore, keys: tuple[str, ...]) -> list[ClaimedSend]:
    distinct, sends = list(dict.fromkeys(keys)), []
    for first in range(0, len(distinct), PAGE):
        page = distinct[first : first + PAGE]
        pairs = zip(page, await store.get(page), strict=True)
        sends += [claimed_in(key, claim) for key, claim in pairs if claim is not None]
    return [send for send in sends if send is not None]


def _asked(place: Place, question: Callable[[ClaimStore], Awaitable[T]]) -> T:
    """Return the answer to a question to the store."""

    async def answer() -> T:
        async with _store(place) as store:
            return await question(store)

    try:
        return asyncio.run(answer())
    except (PushError, CommandError):
        raise
    except Exception as error:  # noqa: BLE001 - the text of a driver may hold the address
        raise CommandError(f"the claim store failed ({type(error).__name__})", Exit.CANNOT_RUN) from None


def _store(place: Place) -> ClaimStore:
    kind, _, path = place.claims.partition(":")
    if kind in FILES:
        # Else a typing error would make an empty store, of which nothing is claimed.
        if not Path(path).exists():
            raise usage(f"{path}: there is no claim store")
        return FILES[kind](path)
    if place.claims.startswith(REDIS):
        return RedisClaims(place.claims, prefix=place.prefix)
    if place.claims.startswith(POSTGRES):
        return PostgresClaims(place.claims, table=place.table)
    raise usage("--claims is sqlite:PATH, directory:PATH, redis://HOST or postgresql://HOST/DATABASE")
