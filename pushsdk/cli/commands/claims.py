"""``pushsdk claims list``, ``show``, ``count``, ``release``: sends with an idempotency key that have claimed users."""

import asyncio
import os
import re
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, TypeVar

from cyclopts import Group, Parameter

from pushsdk import ConfigurationError, PushError
from pushsdk._core import words
from pushsdk._core.decisions import reason_of
from pushsdk._core.idempotency import NAME_DIGITS, ClaimRecord, digest_of
from pushsdk._core.user_states import UserState
from pushsdk._runs.claim_log import store_failure
from pushsdk.claims import SERVERS, ClaimStore, store_at
from pushsdk.claims._operators import ClaimedSend, claimed, claimed_in, settle
from pushsdk.claims.store import PAGE, Claim
from pushsdk.cli.exit import CommandError, Exit, text_of, usage_error
from pushsdk.cli.options import Json, JsonLines, Yes, command_line
from pushsdk.cli.output import print_figures
from pushsdk.cli.settings import shown
from pushsdk.cli.terminal import ask, duration, print_json, say, warn

T = TypeVar("T")
_LOCATIONS = "sqlite:PATH, redis://HOST, postgresql://HOST/DATABASE or s3://BUCKET/PREFIX"
_WHOLE = 64  # digits
NAME = re.compile(rf"[0-9a-f]{{{NAME_DIGITS},{_WHOLE}}}")
_RELEASED = (
    UserState.PENDING,
    "Release",
    "Users who were pushed before may get the push a second time, with the next delivery.",
)
_SETTLED = (
    UserState.ACCEPTED,
    "Settle",
    "The next delivery succeeds without a push, and users who were not pushed before never get it.",
)
Jobs = Annotated[str, Parameter(help="The hashes of jobs' keys, as claims list prints them, or their first 12 digits.")]
Keys = Annotated[
    Sequence[str],
    Parameter(help="Name a job by its idempotency key. Repeatable."),
]
OlderThan = Annotated[timedelta | None, Parameter(help="Select sends claimed at least this long ago: 90s, 15m, 2d.")]


@Parameter(name="*", group=Group("Store", sort_key=10))
@dataclass(frozen=True, kw_only=True)
class StoreOptions:
    """The claim store."""

    claims: Annotated[
        str,
        Parameter(
            env_var="PUSHSDK_CLAIMS",
            help=f"Set the store, here or in PUSHSDK_CLAIMS: {_LOCATIONS}.",
        ),
    ]
    prefix: str = "pushsdk:claim:"
    """Set the key prefix in Redis."""
    table: str = "pushsdk_claims"
    """Set the table in PostgreSQL."""

    def open(self) -> ClaimStore:
        """Return the store. Raises a usage error for an unknown kind or a missing file."""
        kind, _, path = self.claims.partition(":")
        # These would be an empty store, in which nothing is claimed.
        if kind == "memory":
            raise usage_error(f"no claims are kept at {self.claims}, which ends with its process; use {_LOCATIONS}")
        if kind == "sqlite" and not Path(path).exists():
            raise usage_error(
                f"{path} does not exist: is the path right? The first send with an idempotency_key makes it"
            )
        names = {"RedisClaims": {"prefix": self.prefix}, "PostgresClaims": {"table": self.table}}
        try:
            return store_at(self.claims, **names.get(SERVERS.get(kind, ""), {}))
        except ConfigurationError as error:
            raise usage_error(text_of(error)) from None


def list_claims(
    *,
    store: StoreOptions,
    key: Keys = (),
    older_than: OlderThan = None,
    json: JsonLines = False,
) -> int:
    """List the sends with claimed users, oldest first: in flight, from a dead process, or with an unknown outcome."""
    sends, names = _claimed(store, older_than), _names((), key)
    if not json:
        say(f"{'claimed at':<20}  {'age':>9}  {'users':>7}  job")
    for send in sends:
        claimed_at, age = _time_and_age(send.since)
        job = names.get(send.key, send.key)
        if json:
            print_json({"key": send.key, "job": job, "claimed_at": claimed_at, "age": round(age), "users": send.users})
        else:
            say(f"{claimed_at}  {duration(age):>9}  {send.users:>7,}  {job}")
    if not sends:
        warn("found no claimed sends")
    if names:
        _tell_missing(names, _stored(store, names))
    if not json:
        _advise(sends, store)
    return Exit.DONE


def _time_and_age(since: float) -> tuple[str, float]:
    """Return a Unix time as text, and the seconds since then."""
    return datetime.fromtimestamp(since, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"), max(0.0, time.time() - since)


def count(*, store: StoreOptions, older_than: OlderThan = None, json: Json = False) -> int:
    sends = _claimed(store, older_than)
    counts = {"sends": len(sends), "users": _users_of(sends)}
    if json:
        print_json(counts)
    else:
        print_figures((name, f"{number:,}", "", "") for name, number in counts.items())
    return Exit.DONE


def show(*jobs: Jobs, key: Keys = (), store: StoreOptions, json: JsonLines = False) -> int:
    if not (names := _names(jobs, key)):
        raise usage_error("name a job, for example by its idempotency key: pushsdk claims show --key order-42")
    found = _stored(store, names)
    for digest, claim in found.items():
        _show(digest, claim, json=json, given=names.get(digest, ""))
    sends = [*filter(None, map(claimed_in, found, found.values()))]
    if not json:
        _advise(sends, store)
    return Exit.DONE if _tell_missing(names, found) else Exit.INCOMPLETE


def _advise(sends: Sequence[ClaimedSend], store: StoreOptions) -> None:
    in_doubt = [send for send in sends if not _in_flight(send.record)]
    if in_doubt:
        # Without a store that the variable names: the command reads it too, and it may hold a password.
        defaults = {"claims": os.environ.get("PUSHSDK_CLAIMS"), **vars(StoreOptions)}
        given = {name: value for name, value in vars(store).items() if value != defaults[name]}
        line = "claims", "release", "--accepted", in_doubt[0].key[:NAME_DIGITS]
        warn("nearly all jobs in doubt had been pushed; see: pushsdk docs idempotency#claims-of-dead-processes")
        warn(f"if the push arrived:  {command_line(line, given)}  (without --accepted, the next delivery pushes again)")


def _in_flight(record: ClaimRecord) -> str:
    """Return how long a claim may be in flight; ``""`` if its call's time is over or its outcome is known."""
    # At most the claim's length, if its clock was ahead.
    seconds = record.sending_until - max(time.time(), record.claimed_at)
    is_sending = seconds > 0 and record.states().count(UserState.CLAIMED)
    return f"may be in flight for {seconds + 0.5:.0f} s more" if is_sending else ""


def _show(digest: str, claim: Claim, *, json: bool = False, given: str = "") -> None:
    try:
        record = ClaimRecord.decode(claim.record)
        rows = [(stop - start, status) for start, stop, status in record.states().runs()]
    except (ValueError, RecursionError):
        warn(f"{digest}: what is stored there is no claim of this version")
        return
    claimed_at, age = _time_and_age(record.claimed_at)
    if json:
        counts = [{"state": status.state, "users": users, "reason": status.reason} for users, status in rows]
        print_json({"key": digest, "claimed_at": claimed_at, "age": round(age), "states": counts})
        return
    key = f" ({given})" if given.startswith("--key") else ""
    say(f"{digest}{key}, claimed {duration(age)} ago at {claimed_at}")
    claimed = _in_flight(record) or "in doubt: its process died, or could not write the outcome"
    print_figures(
        (status.state, f"{users:,}", reason_of(status, "not sent: the next delivery sends", claimed=claimed), "")
        for users, status in rows
    )


def release(
    *jobs: Jobs,
    key: Keys = (),
    store: StoreOptions,
    older_than: OlderThan = None,
    accepted: bool = False,
    force: bool = False,
    yes: Yes = False,
) -> int:
    """Release claimed users: the next delivery pushes to them, or with ``accepted`` succeeds without a push.

    Args:
        accepted: Settle the users as accepted: the next delivery skips them.
        force: Take sends in flight, too: a live process pushes twice.
    """
    names = _names(jobs, key)
    chosen = _chosen(names, older_than, store)
    sends = chosen if force else _ended(chosen)
    state, verb, risk = _SETTLED if accepted else _RELEASED
    if sends and not yes:
        ask(
            f"{verb} {words.count(_users_of(sends))} of {words.count(len(sends), 'send')}? {risk}",
            declined="nothing was changed",
        )
    done = with_store(store.claims, store.open, lambda opened: settle(opened, sends, state))
    if changed := len(sends) - len(done):
        warn(f"{words.count(changed, 'send')} changed meanwhile and stayed claimed: list the claims again")
    kept = len(chosen) - len(done)
    rest = f"; {words.count(kept, 'send')} stayed claimed" if kept else ""
    say(f"{verb.lower()}d {words.count(_users_of(done))} of {words.count(len(done), 'send')}{rest}")
    return Exit.INCOMPLETE if len(done) < max(len(chosen), len(names)) else Exit.DONE


def _ended(sends: list[ClaimedSend]) -> list[ClaimedSend]:
    """Return the sends that can't be in flight, and name the others: a claim after this look changes the token."""
    ended = []
    for send in sends:
        if why := _in_flight(send.record):
            warn(
                f"{send.key[:NAME_DIGITS]} {why}: wait, or pass --force if its process is dead; if the process is "
                "still alive, users may get two pushes"
            )
        else:
            ended.append(send)
    return ended


def _names(jobs: Sequence[str], keys: Sequence[str]) -> dict[str, str]:
    """Return the hash of each job's key, or the first digits of it, each with its argument. Raises a usage error."""
    for job in jobs:
        if not NAME.fullmatch(job):
            raise usage_error(
                f"{job}: a job must be the {NAME_DIGITS} to 64 hexadecimal digits of its key's hash, as pushsdk claims "
                "list prints them; for an idempotency key pass --key"
            )
    return {job: job for job in jobs} | {digest_of(key): f"--key {key}" for key in keys}


def _chosen(names: Mapping[str, str], older_than: timedelta | None, store: StoreOptions) -> list[ClaimedSend]:
    """Return the sends of these names, or the old ones. Raises a usage error."""
    if bool(names) is (older_than is not None):
        raise usage_error("pass either jobs, --key or --older-than, for example: pushsdk claims release --key order-42")
    if not names:
        return _claimed(store, older_than)
    claims = _stored(store, names)
    _tell_missing(names, claims)
    sends = list[ClaimedSend]()
    for digest, claim in claims.items():
        if send := claimed_in(digest, claim):
            sends.append(send)
        else:
            _show(digest, claim)
    return sends


def _tell_missing(names: Mapping[str, str], found: Collection[str]) -> bool:
    """Name each job without a claim. Return True if there is none."""
    missing = [given for name, given in names.items() if not any(digest.startswith(name) for digest in found)]
    for given in missing:
        warn(f"{given}: not in the claim store: is the key right? Its job may not have begun, or its claim has expired")
    return not missing


def _users_of(sends: Sequence[ClaimedSend]) -> int:
    return sum(send.users for send in sends)


def _claimed(store: StoreOptions, older_than: timedelta | None) -> list[ClaimedSend]:
    seconds = older_than.total_seconds() if older_than else 0.0
    return with_store(store.claims, store.open, lambda opened: claimed(opened, older_than=seconds))


def _stored(store: StoreOptions, names: Mapping[str, str]) -> dict[str, Claim]:
    return with_store(store.claims, store.open, lambda opened: _claims_of(opened, [*names]))


async def _claims_of(store: ClaimStore, names: Sequence[str]) -> dict[str, Claim]:
    """Return the claims whose keys begin with these names."""
    if len(names) > PAGE or any(len(name) < _WHOLE for name in names):
        return {key: claim async for key, claim in store.scan() if key.startswith(tuple(names))}
    found = await store.get(names)
    return {key: claim for key, claim in zip(names, found, strict=True) if claim}


def with_store(location: str, make: Callable[[], ClaimStore], operation: Callable[[ClaimStore], Awaitable[T]]) -> T:
    """Return a store operation's result. Not for questions: Ctrl-C would not end one at once."""

    async def run() -> T:
        async with make() as store:
            return await operation(store)

    try:
        return asyncio.run(run())
    except (PushError, CommandError):
        raise
    except Exception as error:  # noqa: BLE001 - a driver's text may hold the address
        raise CommandError(f"{shown('claims', location)}: {store_failure(error)}", Exit.CANNOT_RUN) from None
