"""Enqueuing jobs and running workers, for each framework."""

import asyncio
import os
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import NamedTuple

import pytest

AT_A_TIME = 50


class Framework(NamedTuple):
    """Enqueuing jobs and running the worker."""

    needs: str
    """The package without which its tests are skipped."""
    command: Sequence[str]
    enqueue: Callable
    left: Callable | None = None
    """Return the number of jobs that the broker still has, if the broker may lose a job by itself."""
    nudge: Callable | None = None
    """Make the framework look for the jobs of a killed worker, if only a new worker does that."""


def installed(package, framework):
    """Skip the test if the package is missing, unless PUSHSDK_REQUIRE_WORKERS names the framework."""
    if find_spec(package) is None and framework not in os.environ.get("PUSHSDK_REQUIRE_WORKERS", "").split():
        extra = "workers-arq" if framework == "arq" else "workers"
        pytest.skip(f"{package} is not installed (pip install -e '.[{extra}]')")


def required(framework):
    """Return the framework, or skip the test."""
    spec = FRAMEWORKS[framework]
    installed(spec.needs, framework)
    return spec


async def _each(jobs, hand_over):
    for first in range(0, jobs, AT_A_TIME):
        await asyncio.gather(*(hand_over(f"{number:05}") for number in range(first, min(jobs, first + AT_A_TIME))))


async def _to_arq(redis_url, jobs):
    from arq.connections import RedisSettings, create_pool

    pool = await create_pool(RedisSettings.from_dsn(redis_url))
    await _each(jobs, lambda order: pool.enqueue_job("shipped", order, f"user-{order}"))
    await pool.aclose()


async def _to_taskiq(redis_url, jobs):
    from taskiq.kicker import AsyncKicker
    from taskiq_redis import RedisStreamBroker

    broker = RedisStreamBroker(redis_url, consumer_id="0")
    await broker.startup()
    await _each(jobs, lambda order: AsyncKicker("taskiq_jobs:shipped", broker, {}).kiq(order, f"user-{order}"))
    await broker.shutdown()


def _nudge_taskiq(redis):
    """With a job that no worker knows: it is logged, and done."""
    from taskiq import TaskiqMessage
    from taskiq_redis import RedisStreamBroker

    nobodys = TaskiqMessage(task_id="nudge", task_name="nudge", labels={}, args=[], kwargs={})
    formatter = RedisStreamBroker("redis://localhost").formatter
    redis.xadd("taskiq", {"data": formatter.dumps(nobodys).message})


async def _to_faststream(redis_url, jobs):
    from faststream.redis import RedisBroker
    from redis.asyncio import Redis

    async with Redis.from_url(redis_url) as redis:
        await redis.xgroup_create("shipped", "push", id="0", mkstream=True)
    async with RedisBroker(redis_url) as broker:
        await _each(jobs, lambda order: broker.publish({"order": order, "user": f"user-{order}"}, stream="shipped"))


async def _to_celery(redis_url, jobs):
    from celery import Celery

    with Celery(broker=redis_url) as app, app.producer_pool.acquire(block=True) as producer:
        for number in range(jobs):
            app.send_task("shipped", (f"{number:05}", f"user-{number:05}"), producer=producer)


def _left_in_celery(redis):
    """Jobs are removed from the list before they are recorded, so a kill in between loses a job."""
    return redis.llen("celery") + redis.hlen("unacked")


FRAMEWORKS = {
    "arq": Framework("arq", ["arq", "arq_worker.WorkerSettings"], _to_arq),
    "taskiq": Framework(
        "taskiq_redis",
        ["taskiq", "worker", "taskiq_worker:broker", "--workers", "1", "--ack-type", "when_executed"],
        _to_taskiq,
        nudge=_nudge_taskiq,
    ),
    "faststream": Framework(
        "faststream", ["faststream", "run", "faststream_worker:app", "--log-level", "warning"], _to_faststream
    ),
    "celery": Framework(
        "celery",
        ["celery", "-A", "celery_worker", "worker", "--concurrency", "2", "--loglevel", "WARNING"],
        _to_celery,
        _left_in_celery,
    ),
}
