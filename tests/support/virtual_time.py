"""Virtual time as users have it, and strict: nothing may be left behind.

``@virtual`` runs an async test on it, and fails it for a task, timer or unretrieved exception that it leaves behind.
"""

import asyncio
import functools
import gc
import random

from pushsdk.testing import VirtualLoop as UsersLoop


class VirtualLoop(UsersLoop):
    """A loop that remembers reported errors."""

    def __init__(self):
        super().__init__()
        #: For example unretrieved exceptions.
        self.complaints = []
        self.set_exception_handler(lambda _, context: self.complaints.append(f"{context}"))

    @property
    def timers(self):
        """The timers that are still to come."""
        return [timer for timer in self._scheduled if not timer.cancelled()]

    def jump(self, seconds):
        """Let time pass at once, as for a process that was stopped."""
        self._virtual.now += seconds

    def abandon(self):
        """End whatever is left, and close."""
        try:
            for _ in range(3):
                tasks = asyncio.all_tasks(self)
                for task in tasks:
                    task.cancel()
                if tasks:
                    self.run_until_complete(asyncio.wait(tasks, timeout=1.0))
        finally:
            self.close()


def now():
    """The time of the running loop."""
    return asyncio.get_running_loop().time()


async def turns(count=3):
    """Let every task that can run take a few steps; no time passes."""
    for _ in range(count):
        await asyncio.sleep(0)


def run(main, *, collect=True):
    """Run on a new loop with seeded randomness. Fails if a task, a timer or an unretrieved exception is left."""
    loop = VirtualLoop()
    random.seed(0)
    try:
        result = loop.run_until_complete(main)
        tasks = asyncio.all_tasks(loop)
        timers = loop.timers
        if collect:
            gc.collect()
        assert not tasks, f"tasks left behind: {tasks}"
        assert not timers, f"timers left behind: {timers}"
        assert not loop.complaints, loop.complaints
    finally:
        loop.abandon()
    return result


def virtual(test):
    """Run an async test on virtual time."""

    @functools.wraps(test)
    def run_test(*args, **kwargs):
        run(test(*args, **kwargs))

    return run_test
