"""The wait before a retry, by a RetryPolicy and by the tenacity strategies in it.

tenacity's loop is not used: each turn takes 16 to 26 us, and a policy has strategies only if the caller brings them.
"""

import inspect
import math
import random
from typing import Any

from pushsdk._core.errors import PushError
from pushsdk._core.policy import RetryPolicy


def state_of(policy: RetryPolicy) -> Any:
    """Return the state that tenacity's strategies read, for one request's retries. None if the policy has none."""
    if policy.stop is policy.wait is policy.retry is None:
        return None
    import tenacity  # slow to import, and loaded already by whoever passes its strategies

    return tenacity.RetryCallState(tenacity.AsyncRetrying(), None, (), {})


def record(state: Any, number: int, error: PushError) -> None:
    """Record a failed attempt for the strategies. Not counted from 1 if its request was split from another by key."""
    state.attempt_number = number
    state.set_exception((type(error), error, None))


async def next_wait(request: Any, state: Any) -> float | None:
    """Return the seconds to wait after an ``ApiRequest``'s failed attempt; None if the policy allows no other.

    A caller's strategies may raise.
    """
    policy, number, last = request.options.policy, request.number, request.attempts[-1]
    if not await _is_wanted(request, state):
        return None
    wait: float = policy.backoff(number, last, random.random())  # noqa: S311 - jitter
    if policy.wait is not None:
        wait = float(policy.wait(state))
        # tenacity's strategies can give a negative, NaN or infinite wait.
        wait = max(last.retry_after or 0.0, wait if math.isfinite(wait) else 0.0)
    if policy.stop is None:
        return wait if number < policy.max_attempts else None
    state.upcoming_sleep = wait
    return None if policy.stop(state) else wait


async def _is_wanted(request: Any, state: Any) -> bool:
    policy = request.options.policy
    if policy.retry is None:
        return bool(policy.should_retry(request.attempts[-1], collapsible=request.is_collapsible))
    result = policy.retry(state)
    return bool(await result if inspect.isawaitable(result) else result)
