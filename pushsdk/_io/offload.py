"""Blocking work, kept away from the event loop."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable
from typing import Any

__all__ = ["Offload", "in_thread", "settled"]

#: Runs a function away from the event loop, and returns what it returned.
Offload = Callable[[Callable[[], Any]], Awaitable[Any]]


async def in_thread(work: Callable[[], Any]) -> Any:
    """Run blocking work in a thread. A cancellation waits for its end: two threads must not meet in one file."""
    # No task, as to_thread would be: all tasks are cancelled where a loop is closed, and the thread goes on.
    thread = asyncio.get_running_loop().run_in_executor(None, contextvars.copy_context().run, work)
    try:
        return await asyncio.shield(thread)
    except asyncio.CancelledError:
        await settled(thread)
        raise


async def settled(task: asyncio.Future[Any]) -> bool:
    """Wait for the end of a task, whatever comes; True where it has a result. For a caller that is being cancelled."""
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            # Once more: the first one is about to be raised.
            continue
    return not task.cancelled() and task.exception() is None
