"""Blocking work, kept away from the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

__all__ = ["Offload", "in_thread"]

#: Runs a function away from the event loop, and returns what it returned.
Offload = Callable[[Callable[[], Any]], Awaitable[Any]]


async def in_thread(work: Callable[[], Any]) -> Any:
    """Run blocking work in a thread. A cancellation waits for its end: two threads must not meet in one file."""
    task = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise
