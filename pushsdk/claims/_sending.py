"""One call under one claim: which of its users are sent to, what is recorded of them, what the caller is told."""

from __future__ import annotations

from pushsdk._core import dedupe, wire
from pushsdk._core.batching import Call, Content
from pushsdk._core.dedupe import Record, Share
from pushsdk._core.errors import PushError
from pushsdk._core.outcome import Failure, Outcome, Verdict
from pushsdk._core.results import Receipt
from pushsdk._io.engine import Engine
from pushsdk._io.ledger import unsettled

__all__ = ["Sending"]


class Sending:
    """See ``_guard.Load``."""

    __slots__ = ("_call", "_content", "_engine", "_ids", "_part", "_told", "_users")

    def __init__(self, engine: Engine, call: Call, content: Content) -> None:
        self._engine = engine
        self._call = call
        self._content = content
        # Its users by position, and they as JSON: whatever order the caller's were in.
        self._users, self._ids = dedupe.by_position(call.users), call.ids
        if self._users != call.users:
            self._ids = wire.encode_user_ids(self._users)[1:-1]
        # What of the call is sent: all of it, or a part of its users; and what that was answered. Set by ``send``.
        self._part: Call | None = None
        self._told: Receipt | PushError | None = None

    @property
    def count(self) -> int:
        return len(self._users)

    @property
    def deadline(self) -> float:
        return self._call.deadline

    def fingerprint(self, dedupe_key: str) -> str:
        """Of exactly what is sent, and where."""
        return dedupe.fingerprint_of(
            dedupe_key,
            self._engine.settings.base_url,
            ids=self._ids,
            message=self._content.message,
            custom_fields=self._content.custom_fields,
        )

    async def send(self, places: tuple[int, ...]) -> None:
        call = part = self._call
        if len(places) < len(call.users):
            users = tuple(self._users[place] for place in places)
            part = Call(users, wire.encode_user_ids(users)[1:-1], call.deadline, len(users), call.repeated)
        self._part = part
        try:
            self._told = await self._engine.coalescer.send(part, self._content)
        except PushError as error:
            self._told = error

    def after(self, record: Record) -> Record:
        assert self._part is not None  # noqa: S101 - set by ``send``, which comes before
        # Cancelled, only what is known by now is.
        shares = tuple(self._part.parts) if self._told is None else _shares(self._part)
        return record.after(self._users, shares)

    def conclude(self, before: Record) -> Receipt | PushError:
        """What the caller is told."""
        if self._told is not None and self._part is self._call:
            return self._told
        shares = () if self._part is None else _shares(self._part)
        return dedupe.conclude(self._call.users, self._call.repeated, before=before, shares=shares)

    def fail(self) -> None:
        """The store failed before anything was sent: that counts, and is in the report of the client's end."""
        ledger, call = self._engine.coalescer.ledger, self._call
        ledger.settle(call, call.users, Verdict(outcome=Outcome.NOT_SENT))
        ledger.end(call)

    def abandon(self) -> None:
        """The caller was cancelled: ``on_event`` is told how it ended, as of any send."""
        ledger, call = self._engine.coalescer.ledger, self._call
        if self._part is None:
            call.gone = True
            ledger.settle(call, call.users, Verdict(outcome=Outcome.NOT_SENT, failure=Failure.CANCELLED))
        elif self._told is not None and not self._part.left:
            self._part.gone = True
            ledger.tell_abandoned(self._part)
        # Else it left in the middle of its sending, and the coalescer tells.


def _shares(call: Call) -> tuple[Share, ...]:
    """The verdicts on all users of a call that has ended for its caller."""
    if not call.left:
        return tuple(call.parts)
    return (*call.parts, (unsettled(call), Verdict(outcome=Outcome.UNKNOWN, failure=Failure.DEADLINE)))
