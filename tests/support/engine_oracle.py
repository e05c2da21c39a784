"""The embedded service in a process of its own, beside engines that keep this one busy: the judge of who was pushed."""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

from pushsdk.emulator import Emulator, Fault

__all__ = ["Oracle", "oracle"]

# Seconds in which so many requests have to come.
HANGS = 120.0


class Oracle:
    """The tests' end. One inbox, which each test begins anew."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self.base_url, self.api_key = pipe.recv()

    def begin(self, faults: Iterable[Fault] = ()) -> None:
        """Forget what was, and fail like this."""
        self._ask("begin", tuple(faults))

    def fail(self, faults: Iterable[Fault]) -> None:
        """From now on fail like this; what was is not forgotten."""
        self._ask("fail", tuple(faults))

    def until(self, requests: int) -> None:
        """Wait until so many requests were answered or lost."""
        assert self._ask("until", requests), "the requests did not come"

    @property
    def requests(self) -> int:
        """How many of them are kept."""
        return self._ask("requests")

    def users(self) -> Mapping[str, int]:
        """Who was pushed, and how often."""
        return self._ask("users")

    def hits(self) -> Mapping[str, int]:
        """How often each fault acted."""
        return self._ask("hits")

    def texts(self) -> Mapping[str, tuple[Any, Any]]:
        """The message and the custom fields that each user got."""
        return self._ask("texts")

    def _ask(self, *words: object) -> Any:
        self._pipe.send(words)
        return self._pipe.recv()


@contextmanager
def oracle() -> Iterator[Oracle]:
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


def _serve(pipe: Connection) -> None:
    asyncio.run(_answer(pipe))


async def _answer(pipe: Connection) -> None:
    async with Emulator() as emulator:
        inbox = emulator.inbox(emulator.api_key)
        pipe.send((emulator.base_url, emulator.api_key))

        def begin(faults: tuple[Fault, ...]) -> None:
            inbox.forget()
            inbox.set_faults(faults)

        async def until(requests: int) -> bool:
            try:
                async with asyncio.timeout(HANGS):
                    while True:
                        mark = inbox.changes
                        if len(inbox.requests()) >= requests:
                            return True
                        await inbox.changed(mark)
            except TimeoutError:
                return False

        orders: Mapping[str, Callable[..., Any]] = {
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
