"""The embedded service in a separate process, as engines keep this one busy: counts the pushes of each user."""

import asyncio
import multiprocessing
from contextlib import contextmanager

from pushsdk.emulator import Emulator

# Seconds to wait for a number of requests.
HANGS = 300.0


class Oracle:
    """The tests' end. One inbox, which each test begins anew."""

    def __init__(self, pipe):
        self._pipe = pipe
        self.base_url, self.api_key = pipe.recv()

    def begin(self, faults=()):
        """Reset the counts and set these faults."""
        self._ask("begin", tuple(faults))

    def fail(self, faults):
        """Set these faults and keep the counts."""
        self._ask("fail", tuple(faults))

    def until(self, requests):
        """Wait until this number of requests was answered or lost."""
        assert self._ask("until", requests), "the requests did not come"

    @property
    def requests(self):
        """Return the number of stored requests."""
        return self._ask("requests")

    def users(self):
        """Return the number of pushes of each user."""
        return self._ask("users")

    def hits(self):
        """Return the number of hits of each fault."""
        return self._ask("hits")

    def texts(self):
        """The message and the custom fields that each user got."""
        return self._ask("texts")

    def _ask(self, *words):
        self._pipe.send(words)
        return self._pipe.recv()


@contextmanager
def oracle():
    """A running one."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs,), daemon=True)
    process.start()
    theirs.close()
    try:
        yield Oracle(ours)
    finally:
        ours.close()
        process.join(10)
        process.kill()
        process.join()


def _serve(pipe):
    asyncio.run(_answer(pipe))


async def _answer(pipe):
    async with Emulator() as emulator:
        inbox = emulator.inbox(emulator.api_key)
        pipe.send((emulator.base_url, emulator.api_key))

        def begin(faults):
            inbox.forget()
            inbox.set_faults(faults)

        async def until(requests):
            try:
                async with asyncio.timeout(HANGS):
                    while len(inbox.requests()) < requests:  # noqa: ASYNC110 - the oracle has no event
                        await asyncio.sleep(0.01)
                    return True
            except TimeoutError:
                return False

        orders = {
            "begin": begin,
            "fail": inbox.set_faults,
            "requests": lambda: len(inbox.requests()),
            "users": lambda: dict(inbox.users()),
            "hits": lambda: dict(inbox.hits()),
            "texts": lambda: {
                user: (push.message, push.custom_fields) for push in inbox.pushes for user in push.user_ids
            },
        }
        while True:
            try:
                order, *arguments = await asyncio.to_thread(pipe.recv)
            except EOFError:
                return
            pipe.send(await until(*arguments) if order == "until" else orders[order](*arguments))
