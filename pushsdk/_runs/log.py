"""The log of a run in its run file: claims users before the first byte of their request, settles them after."""

from __future__ import annotations

import asyncio
import functools
import math

from pushsdk._core.errors import RunFileError
from pushsdk._core.outcome import Outcome
from pushsdk._core.user_states import UserState, UserStatus
from pushsdk._io.threads import Offload
from pushsdk._runs.plan import ChunkRequest, Ending, Event, UserRange
from pushsdk._runs.run_file.group_commit import GroupCommit
from pushsdk._runs.run_file.journal import NEVER_SETTLED, Journal

__all__ = ["RunFileLog"]


_CLAIMED, _RESENT = UserStatus(UserState.CLAIMED), UserStatus(UserState.CLAIMED, resent=True)


class RunFileLog:
    """Writes what happens to the users of a run into its journal, in group commits."""

    def __init__(
        self, journal: Journal, *, loop: asyncio.AbstractEventLoop, offload: Offload, durable: bool = False
    ) -> None:
        """``durable``: a claim is on the disk before its request leaves."""
        self._journal = journal
        self._offload = offload
        self._durable = durable
        self._commits: GroupCommit[Event] = GroupCommit(
            journal.commit, journal.apply, loop=loop, offload=offload, durable=durable
        )

    def give_up_claims(self) -> None:
        """Settle as UNKNOWN what an earlier process claimed: from now on whatever is CLAIMED is in flight."""
        unknown = UserStatus(UserState.UNKNOWN, None, NEVER_SETTLED)
        for piece in self._journal.pieces(frozenset({UserState.CLAIMED})):
            self.settle(piece, unknown)

    def claim_of(self, request: ChunkRequest, *, resent: bool) -> _PieceClaim:
        """See ``RunLog``."""
        return _PieceClaim(self, request, resent=resent)

    async def claim(self, piece: UserRange, *, resent: bool) -> bool:
        """Return True when the claim is committed, False if it can't be: then nothing may be sent."""
        return await self._commits.add((piece.start, piece.stop, _RESENT if resent else _CLAIMED))

    def settle(self, users: UserRange, status: UserStatus) -> None:
        """Have the status of these users written with the next commit."""
        self._commits.note((users.start, users.stop, status))

    def deadline(self) -> float:
        """See ``RunLog``. These claims never expire."""
        return math.inf

    async def flush(self) -> None:
        """Wait until everything so far is committed, or can't be; ``check`` tells which."""
        await self._commits.flush()

    def check(self) -> None:
        """Raises RunFileError if something could not be committed."""
        error = self._commits.failed
        if isinstance(error, RunFileError):
            raise error
        if error is not None:
            why = f"the run can't be recorded any more: {type(error).__name__}"
            raise RunFileError(why, outcome=Outcome.UNKNOWN) from None

    async def end(self, ending: Ending | None) -> None:
        """Write why the sending ended before its end, or that it did not."""
        if self._durable:
            await self._offload(functools.partial(self._journal.end, ending))
        else:
            self._journal.end(ending)


class _PieceClaim:
    """See ``UsersClaim``. Every status is written, also of an attempt that came to no claim."""

    def __init__(self, log: RunFileLog, request: ChunkRequest, *, resent: bool) -> None:
        self._log = log
        self._request = request
        self._resent = resent
        self.users = request.users

    async def make(self) -> ChunkRequest | None:
        return self._request if await self._log.claim(self._request.piece, resent=self._resent) else None

    def settle(self, status: UserStatus) -> None:
        # A claim that is still to be committed is committed before this.
        self._log.settle(self._request.piece, status)
