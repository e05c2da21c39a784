"""Retries by tenacity: the loop after a first failed attempt.

The failure is the loop's attempt number one, so a request that succeeds or may not be retried never pays for the loop.
There is one ``AsyncRetrying`` for each request: a shared one silently returns wrong values if a hook suspends.
"""

import inspect
import math
import random
from functools import partial
from typing import Any

import tenacity

from pushsdk._core.error_mapping import error_for
from pushsdk._core.errors import PushError
from pushsdk._io.request import ApiRequest
from pushsdk._io.sender import RequestSender


async def retry(sender: RequestSender, request: ApiRequest) -> None:
    """Retry the request until an attempt is accepted, or no other attempt is allowed."""
    policy = request.options.policy
    # Errors are made only for strategies that read them.
    raises = not (policy.stop is policy.wait is policy.retry is None)
    is_first = True

    async def attempt() -> bool:
        nonlocal is_first
        is_accepted = False
        if not is_first:
            request.number += 1
            is_accepted = await sender.again(request)
        is_first = False
        if raises and not is_accepted:
            raise error_for(request.verdict())
        return is_accepted

    async def should_retry(state: tenacity.RetryCallState) -> bool:
        # Not counted from 1 if the request was split from another by its key. Asked before ``wait`` and ``stop``.
        state.attempt_number = request.number
        if not _has_failed(state):
            return False
        if policy.retry is not None:
            result: Any = policy.retry(state)
            return bool(await result if inspect.isawaitable(result) else result)
        is_open = request.failure is None
        return is_open and policy.should_retry(request.attempts[-1], collapsible=request.is_collapsible)

    def wait(state: tenacity.RetryCallState) -> float:
        last = request.attempts[-1]
        if policy.wait is None:
            return policy.backoff(state.attempt_number, last, random.random())  # noqa: S311 - jitter
        seconds = float(policy.wait(state))
        # tenacity's strategies can give a negative, NaN or infinite wait.
        return max(last.retry_after or 0.0, seconds if math.isfinite(seconds) else 0.0)

    def stop(state: tenacity.RetryCallState) -> bool:
        number = state.attempt_number
        ended = number >= policy.max_attempts if policy.stop is None else bool(policy.stop(state))
        return ended or not sender.may_retry(request, number, state.upcoming_sleep)

    await tenacity.AsyncRetrying(
        sleep=partial(sender.wait, request),
        stop=stop,
        wait=wait,
        retry=should_retry,
        retry_error_callback=lambda _: None,
    )(attempt)


def _has_failed(state: tenacity.RetryCallState) -> bool:
    """Return True if the attempt was not accepted. Any other error than ours, such as a cancellation, is raised."""
    outcome = state.outcome
    error = None if outcome is None else outcome.exception()
    if outcome is None or not isinstance(error, PushError | None):
        return False
    return error is not None or not outcome.result()
