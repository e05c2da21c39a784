"""Asking for a request's keys: before each attempt but the first, and once more after a refusal."""

import asyncio
import math
from collections.abc import Sequence
from typing import Any

from pushsdk._core.outcome import Failure
from pushsdk._core.policy import Timeout
from pushsdk._io.credentials import NoKey
from pushsdk._io.timers import DeadlineScope, TimerWheel


async def rekey(request: Any, timers: TimerWheel, *, is_refused: bool = False) -> bool:
    """Ask each callable once, in its caller's context. Return True if the calls have one key, for an attempt.

    ``is_refused``: the last key was refused, and calls without a new key need no attempt. A ``BatchRequest`` whose
    calls have different keys ends.
    """
    old, asks = request.key, dict.fromkeys([unit.ask for unit in request.part.units])
    answers = [old if ask is None else ask() for ask in asks]
    keys = await keys_of(answers, timers, request.options.timeout, request.deadline)
    if is_refused:
        keys = [None if isinstance(key, NoKey) or key == old else key for key in keys]
    if len({*keys}) > 1:
        request.keys, request.failure = dict(zip(asks, keys, strict=True)), Failure.REKEYED
        return False
    request.key = keys[0] or old
    return keys[0] is not None


async def keys_of(answers: Sequence[Any], timers: TimerWheel, timeout: Timeout, deadline: float) -> list[Any]:
    """Return the keys from these answers, some of which may be futures, within the timeouts."""
    waits = [answer for answer in answers if asyncio.isfuture(answer)]
    if not waits:
        return list(answers)  # nearly always
    scope = DeadlineScope(timers, min(deadline, timers.loop.time() + (timeout.attempt or math.inf)))
    try:
        with scope:
            await asyncio.wait(waits)
    finally:
        for waiting in waits:
            waiting.cancel()  # does nothing if it has answered
    late = _late(scope.expired, timeout.named("attempt" if scope.deadline < deadline else "total"))
    keys = {waiting: _key_of(waiting, late) for waiting in waits}
    return list(map(keys.get, answers, answers))


def _key_of(waiting: Any, late: NoKey) -> Any:
    return waiting.result() if waiting.done() and not waiting.cancelled() else late


def _late(expired: Failure | None, named: str) -> NoKey:
    """Return why there is no key: the timeout with this name has passed, or the client has another reason."""
    if expired in (None, Failure.DEADLINE):
        return NoKey(Failure.KEY_FAILED, f"it did not return within the {named}", TimeoutError(named))
    return NoKey(expired, "", None)
