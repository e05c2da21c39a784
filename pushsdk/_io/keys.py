"""Asking for a request's keys: before each attempt but the first, and once more after a refusal."""

import asyncio
import math
from collections.abc import Sequence
from typing import Any

from pushsdk._core.outcome import Failure
from pushsdk._core.policy import Timeout
from pushsdk._io.credentials import NoKey
from pushsdk._io.request import ApiRequest
from pushsdk._io.timers import DeadlineScope, TimerWheel


async def rekey(request: ApiRequest, timers: TimerWheel, *, is_refused: bool = False) -> bool:
    """Ask each callable once, in its caller's context. Return True if the calls have one key, for an attempt.

    ``is_refused``: the last key was refused, and calls without a new key need no attempt.
    """
    old, asks = request.key, dict.fromkeys([unit.ask for unit in request.part.units])
    answers = [old if ask is None else ask() for ask in asks]
    keys = await keys_of(answers, timers, request.options.timeout, request.deadline)
    if is_refused:
        keys = [None if isinstance(key, NoKey) or key == old else key for key in keys]
    if len({*keys}) > 1:
        request.split_by_key(dict(zip(asks, keys, strict=True)))
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
        in_time = [waiting for waiting in waits if waiting.done() and not waiting.cancelled()]
        for waiting in waits:
            waiting.cancel()
    named = timeout.named("attempt" if scope.deadline < deadline else "total")
    late = _late_key(scope.expired or Failure.DEADLINE, named)
    keys = dict.fromkeys(waits, late) | {answer: answer.result() for answer in in_time}
    return [keys.get(answer, answer) for answer in answers]


def _late_key(failure: Failure, named: str) -> NoKey:
    """Return the reason why there is no key if the callable did not return: within the named timeout, or at all."""
    if failure is not Failure.DEADLINE:
        return NoKey(failure, "", None)
    return NoKey(Failure.KEY_FAILED, f"it did not return within the {named}", TimeoutError(named))
