"""From a thread into the loop and back: which loop that is, how a thread waits, and how its waiting ends."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from pushsdk._core.errors import ClientClosedError, ConfigurationError, OutcomeUnknownError
from pushsdk._core.explain import closed_error
from pushsdk._core.results import ClientStats, DrainReport
from pushsdk._io.clock import fork_generation
from pushsdk._io.engine import Engine
from pushsdk._sync.call import Call
from pushsdk._sync.process import AT_EXIT, opened
from pushsdk._sync.worker import Late, Worker, closed
from pushsdk.claims._guard import guard_of
from pushsdk.claims.store import ClaimStore
from pushsdk.client import AsyncPushClient

__all__ = ["Place", "Portal", "ended", "errands"]

# Seconds between two looks of a waiting thread whether there is still somebody to wait for, or something to stop for.
PATIENCE = 0.5
LOOKING = 0.05


class Place(NamedTuple):
    """Where calls are performed in this process."""

    worker: Worker
    client: AsyncPushClient


class Portal:
    """The way of a process's threads to one client in one loop. A forked child gets a client and a loop anew."""

    def __init__(self, client: AsyncPushClient, claims: ClaimStore | None) -> None:
        #: How all of them are made; the first of them, too.
        self.client = client
        self._claims = claims
        #: Set by ``close``.
        self.closed = False
        # By fork: a child has no use for its parent's, and none for a lock that another thread may have held.
        self._places: dict[int, Place] = {}
        self._locks: dict[int, threading.RLock] = {}
        finalizer = weakref.finalize(self, _dropped, self._places, f"PushClient({client._engine.settings.base_url!r})")
        # At the end of the interpreter ``process`` closes what is open, without a warning.
        finalizer.atexit = False

    def enter(self) -> Place:
        """Where to go. Raises ClientClosedError, and ConfigurationError in the loop's own thread."""
        place = self._places.get(fork_generation()) or self._open()
        if place.worker.closing:
            raise closed_error()
        _check_thread(place.worker)
        return place

    def call(
        self, place: Place, call: Call, late: Late | None = None, *, look: Callable[[], object] | None = None
    ) -> Any:
        """Have the loop perform the call, and wait for it. Whatever ends the waiting cancels the call.

        ``look`` is called now and then while the thread waits.
        """
        worker = place.worker
        try:
            worker.submit(call)
            _wait(worker, call, look)
            if call.error is not None:
                raise call.error
            return call.result
        except BaseException as error:
            if error is not call.error:
                worker.abandon(call, late)
                raise
            # An exception holds the frames that it went through, and they hold the call.
            call.error = None
            raise

    def stats(self) -> ClientStats:
        """The counters of this process's client."""
        if self.client._engine.forks == fork_generation():
            return self.client.stats()
        place = self._places.get(fork_generation())
        return ClientStats() if place is None else place.client.stats()

    def close(self, drain: float) -> DrainReport:
        """Close it, and wait until its thread has ended; the second of two waits as well."""
        place = self._places.get(fork_generation())
        if place is not None:
            _check_thread(place.worker)
        with self._lock():
            self.closed = True
            place = self._places.get(fork_generation())
        if place is None:
            return DrainReport()
        return ended(place.worker, drain)

    def _open(self) -> Place:
        generation = fork_generation()
        with self._lock():
            if self.closed:
                raise closed_error()
            place = self._places.get(generation)
            if place is None:
                client, claims = self._client_of(generation), self._claims

                async def close(drain: float) -> DrainReport:
                    try:
                        return await client.aclose(drain)
                    finally:
                        if claims is not None:
                            await claims.aclose()

                worker = Worker(close)
                place = Place(worker, client)
                try:
                    opened(worker)
                finally:
                    # A signal may have come when the thread had started.
                    if worker.thread.ident is not None:
                        self._places[generation] = place
                    else:
                        worker.loop.close()
        return place

    def _lock(self) -> threading.RLock:
        return self._locks.setdefault(fork_generation(), threading.RLock())

    def _client_of(self, generation: int) -> AsyncPushClient:
        made = self.client
        if made._engine.forks == generation:
            return made
        client = AsyncPushClient.__new__(AsyncPushClient)
        client._engine = Engine(made._engine.settings)
        client._engine.observer = made._engine.observer
        client._options = made._options
        client._guard = guard_of(self._claims, client._engine)
        return client


def _check_thread(worker: Worker) -> None:
    """Raises ConfigurationError in the loop's own thread."""
    if worker.thread.ident == threading.get_ident():
        raise ConfigurationError(
            "the client was called in its own thread, by on_event or an api_key callable: it would wait for "
            "itself; have another thread call it"
        )


def _wait(worker: Worker, call: Call, look: Callable[[], object] | None = None) -> None:
    """Until the call has ended; do for the loop what only this thread can do."""
    for errand in errands(worker, call, PATIENCE if look is None else LOOKING):
        if errand is not None:
            errand()
        if look is not None:
            look()


def errands(worker: Worker, call: Call, patience: float = PATIENCE) -> Iterator[Callable[[], object] | None]:
    """What the loop would have this thread do, until the call has ended; None where it asked nothing for a while."""
    box = call.box
    while True:
        try:
            errand = box.get(timeout=patience)
        except queue.Empty:
            _check(worker, call)
            yield None
        else:
            if errand is None:
                break
            yield errand
    if isinstance(call.error, asyncio.CancelledError):
        raise OutcomeUnknownError("outcome unknown: the client was closed before this call had ended")


def ended(worker: Worker, drain: float) -> DrainReport:
    """End it, and wait until its thread has ended; the second of two waits as well."""
    report = DrainReport()
    call = worker.end(drain)
    if call is not None:
        try:
            _wait(worker, call)
        except BaseException:
            worker.abandon(call)
            raise
        if call.error is not None:
            raise call.error
        report = call.result
    worker.thread.join()
    return report


def _check(worker: Worker, call: Call) -> None:
    """Whether the call can still end: else the thread would wait for ever."""
    if worker.forks != fork_generation():
        raise OutcomeUnknownError("outcome unknown: the process was forked in this call, which goes on in the parent")
    if worker.thread.is_alive():
        with contextlib.suppress(ClientClosedError):
            # A signal may have come between the call and its wake-up.
            worker.wake()
    elif not call.ended:
        call.end(closed())


def _dropped(places: dict[int, Place], name: str) -> None:
    """Nobody can call the client any more: close it as at the end of the interpreter."""
    place = places.get(fork_generation())
    if place is not None and place.worker.end(AT_EXIT) is not None:
        warnings.warn(f"unclosed {name}: close it, or use it in a with block", ResourceWarning, stacklevel=2)
