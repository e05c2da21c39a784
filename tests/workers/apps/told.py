"""How a worker under test says what each of its jobs came to; and how it forgets the dedupe key."""

from __future__ import annotations

import functools
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import redis
import redis.asyncio

from pushsdk import AsyncPushClient, NotSentError, PushClient, PushError

__all__ = ["telling", "telling_sync"]

JOBS = "jobs-told"
URL = os.environ["REDIS_URL"]


@contextmanager
def _judged() -> Iterator[list[str]]:
    """Its outcome. What was never sent goes to the queue as before."""
    outcome = ["ACCEPTED"]
    try:
        yield outcome
    except NotSentError:
        raise
    except PushError as error:
        outcome[0] = error.outcome.name


def telling(job: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[None]]:
    """The same job, whose outcome is told before it counts as done."""
    teller = redis.asyncio.Redis.from_url(URL)

    @functools.wraps(job)
    async def told(*args: Any, **kwargs: Any) -> None:
        with _judged() as outcome:
            await job(*args, **kwargs)
        await teller.rpush(JOBS, f"{kwargs.get('order') or args[-2]} {outcome[0]}")

    return told


def telling_sync(job: Callable[..., Any]) -> Callable[..., None]:
    """The same of a job that is not awaited."""
    teller = redis.Redis.from_url(URL)

    @functools.wraps(job)
    def told(*args: Any) -> None:
        with _judged() as outcome:
            job(*args)
        teller.rpush(JOBS, f"{args[-2]} {outcome[0]}")

    return told


def _forgetful(send: Callable[..., Any]) -> Callable[..., Any]:
    def plain(*args: Any, dedupe_key: str, **kwargs: Any) -> Any:
        return send(*args, **kwargs)

    return plain


if os.environ.get("WITHOUT_DEDUPE"):
    for client in (AsyncPushClient, PushClient):
        client.send = _forgetful(client.send)  # type: ignore[method-assign]
