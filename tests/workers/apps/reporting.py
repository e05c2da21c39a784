"""Reports of the outcome of each job of a worker under test, and a send that drops the idempotency key."""

import functools
import os
from contextlib import contextmanager

import redis
import redis.asyncio

from pushsdk import AsyncPushClient, PushClient, PushError

JOBS = "jobs-ended"
AGAIN = "jobs-again"
URL = os.environ["REDIS_URL"]


@contextmanager
def _noting(outcomes):
    """Record the outcome. An exception that is not a PushError makes the framework redeliver the job or stop."""
    try:
        yield
    except PushError as error:
        outcomes.append((JOBS, error.outcome.name))
        raise
    except Exception:
        outcomes.append((AGAIN, ""))
        raise
    outcomes.append((JOBS, "ACCEPTED"))


def telling(job):
    """Return the job wrapped so that its outcome is reported before it counts as done."""
    teller = redis.asyncio.Redis.from_url(URL)

    @functools.wraps(job)
    async def wrapper(*args, **kwargs):
        ends = []
        try:
            with _noting(ends):
                await job(*args, **kwargs)
        finally:
            for channel, outcome in ends:
                await teller.rpush(channel, f"{kwargs.get('order') or args[-2]} {outcome}")

    return wrapper


def telling_sync(job):
    """Return the same for a synchronous job."""
    teller = redis.Redis.from_url(URL)

    @functools.wraps(job)
    def wrapper(*args):
        ends = []
        try:
            with _noting(ends):
                job(*args)
        finally:
            for channel, outcome in ends:
                teller.rpush(channel, f"{args[-2]} {outcome}")

    return wrapper


def _forgetful(send):
    def plain(*args, idempotency_key, **kwargs):
        return send(*args, **kwargs)

    return plain


if os.environ.get("WITHOUT_IDEMPOTENCY_KEY"):
    for client in (AsyncPushClient, PushClient):
        client.send = _forgetful(client.send)
