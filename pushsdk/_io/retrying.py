"""Retries by tenacity: the loop after a first failed attempt.

The failure is the loop's attempt number one, so a successful request never pays for the loop. Each request has its own
``AsyncRetrying``: a shared one silently returns wrong values if a hook suspends.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Awaitable, Callable
from typing import Any

import tenacity

from pushsdk._core.errors import PushError
from pushsdk._core.policy import RetryPolicy
from pushsdk._io.sender import Steps


async def retry(first: PushError, steps: Steps, policy: RetryPolicy) -> None:
    """Retry until an attempt succeeds, or raise the PushError of the last attempt."""
    pending: list[PushError] = [first]

    async def attempt() -> None:
        if pending:
            raise pending.pop()
        await steps.again()

    await tenacity.AsyncRetrying(
        sleep=steps.sleep,
        stop=_stop(steps, policy),
        wait=_wait(steps, policy),
        retry=_retry(steps, policy),
        reraise=True,
    )(attempt)


def _retry(steps: Steps, policy: RetryPolicy) -> Callable[[tenacity.RetryCallState], Awaitable[bool]]:
    async def retry(state: tenacity.RetryCallState) -> bool:
        # Our own errors only: a broad predicate would swallow a cancellation and call again.
        if state.outcome is None or not isinstance(state.outcome.exception(), PushError):
            return False
        if policy.retry is None:
            return steps.retryable()
        result: Any = policy.retry(state)
        return bool(await result if inspect.isawaitable(result) else result)

    return retry


def _wait(steps: Steps, policy: RetryPolicy) -> Callable[[tenacity.RetryCallState], float]:
    def wait(state: tenacity.RetryCallState) -> float:
        if policy.wait is None:
            return steps.backoff(state.attempt_number)
        seconds = float(policy.wait(state))
        # tenacity's own strategies can give a negative, NaN or infinite wait.
        return max(steps.at_least(), seconds if math.isfinite(seconds) else 0.0)

    return wait


def _stop(steps: Steps, policy: RetryPolicy) -> Callable[[tenacity.RetryCallState], bool]:
    def stop(state: tenacity.RetryCallState) -> bool:
        number = state.attempt_number
        ended = number >= policy.max_attempts if policy.stop is None else bool(policy.stop(state))
        return ended or not steps.may_go_on(number, state.upcoming_sleep)

    return stop
