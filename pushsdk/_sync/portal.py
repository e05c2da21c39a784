"""One client for the threads of a process: made at the first call, and anew in a forked child."""

from __future__ import annotations

import threading
import warnings
import weakref
from typing import NamedTuple

from pushsdk._core.explain import closed_error
from pushsdk._core.results import ClientStats, DrainReport
from pushsdk._io.clock import fork_generation
from pushsdk._io.engine import Engine
from pushsdk._sync.loop_thread import AT_EXIT, LoopThread
from pushsdk.claims._guard import guard_of
from pushsdk.claims.store import ClaimStore
from pushsdk.client import AsyncPushClient

__all__ = ["Place", "Portal"]


class Place(NamedTuple):
    """Where calls are performed in this process."""

    thread: LoopThread
    client: AsyncPushClient


class Portal:
    """Leads a process's threads to one client in one loop."""

    def __init__(self, client: AsyncPushClient, claims: ClaimStore | None) -> None:
        #: The client of the process that made the portal, and the model for those of forked children.
        self.client = client
        self._claims = claims
        #: Set by ``close``.
        self.closed = False
        # By fork: a child has no use for its parent's, and none for a lock that another thread may have held.
        self._places: dict[int, Place] = {}
        self._locks: dict[int, threading.RLock] = {}
        finalizer = weakref.finalize(self, _dropped, self._places, f"PushClient({client._engine.settings.base_url!r})")
        # At the end of the interpreter ``loop_thread`` closes what is open, without a warning.
        finalizer.atexit = False

    def enter(self) -> Place:
        """Where to go. Raises ClientClosedError, and ConfigurationError in the loop's own thread."""
        generation = fork_generation()
        with self._lock():
            if self.closed:
                raise closed_error()
            place = self._places.get(generation) or self._open(generation)
        place.thread.check_thread()
        return place

    def stats(self) -> ClientStats:
        """The counters of this process's client."""
        if self.client._engine.forks == fork_generation():
            return self.client.stats()
        place = self._places.get(fork_generation())
        return ClientStats() if place is None else place.client.stats()

    def close(self, drain: float) -> DrainReport:
        """Close the client, and wait until its thread has ended; the second of two waits as well."""
        place = self._places.get(fork_generation())
        if place is not None:
            place.thread.check_thread()
        with self._lock():
            self.closed = True
            place = self._places.get(fork_generation())
        return DrainReport() if place is None else place.thread.close(drain)

    def _open(self, generation: int) -> Place:
        client, claims = self._client_of(generation), self._claims

        async def close(drain: float) -> DrainReport:
            try:
                return await client.aclose(drain)
            finally:
                if claims is not None:
                    await claims.aclose()

        place = Place(LoopThread(close), client)
        try:
            place.thread.start()
        finally:
            # A signal may have come when the thread had started.
            if place.thread.has_started:
                self._places[generation] = place
        return place

    def _lock(self) -> threading.RLock:
        return self._locks.setdefault(fork_generation(), threading.RLock())

    def _client_of(self, generation: int) -> AsyncPushClient:
        model = self.client
        if model._engine.forks == generation:
            return model
        client = AsyncPushClient.__new__(AsyncPushClient)
        client._engine = Engine(model._engine.settings)
        client._engine.observer = model._engine.observer
        client._options = model._options
        client._guard = guard_of(self._claims, client._engine)
        return client


def _dropped(places: dict[int, Place], name: str) -> None:
    """Nothing can call the client any more: close it as at the end of the interpreter."""
    place = places.get(fork_generation())
    if place is not None and place.thread.close_soon(AT_EXIT):
        warnings.warn(f"unclosed {name}: close it, or use it in a with block", ResourceWarning, stacklevel=2)
