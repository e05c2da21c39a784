"""The emulator as its users see it: its lifetime, its faults, and what its oracle says."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Self

from pushsdk.emulator.app import Service
from pushsdk.emulator.connections import Connections, bind
from pushsdk.emulator.faults import Fault, Rules
from pushsdk.emulator.guard import HOST, PREFIX, Guard
from pushsdk.emulator.store import Campaign, MemoryStore, Push, Store

__all__ = ["Emulator", "Inbox"]


class Inbox:
    """What was accepted with one Api-Key. A view: it is always up to date."""

    def __init__(self, store: Store, api_key: str) -> None:
        self._store = store
        self._api_key = api_key

    @property
    def pushes(self) -> Sequence[Push]:
        """The accepted push send requests, oldest first."""
        return self._store.pushes(self._api_key)

    @property
    def campaigns(self) -> Sequence[Campaign]:
        """The accepted campaigns, oldest first."""
        return self._store.campaigns(self._api_key)

    def accepted(self, user_id: str) -> int:
        """How many pushes to this user were accepted; an id twice in one request counts twice."""
        return self._store.accepted(self._api_key, user_id)

    def users(self) -> Mapping[str, int]:
        """Every user with an accepted push, and how many."""
        return self._store.users(self._api_key)

    def duplicates(self) -> Mapping[str, int]:
        """The users with more than one accepted push, and how many."""
        return {user_id: times for user_id, times in self.users().items() if times > 1}

    def forget(self) -> None:
        """Drop all that was accepted with this key."""
        self._store.forget(self._api_key)


class Emulator:
    """The push service on 127.0.0.1, and the oracle of what it accepted.

    ``async with Emulator() as emulator:`` runs it; ``base_url`` and ``api_key`` are what a client needs. Any other
    key that is not empty works too and has an inbox of its own, `inbox`. An acceptance is recorded before its answer
    is written. What was recorded can be read after the end too.

    ``port`` 0 takes any free one; ``faults`` are tried in order, their draws come from ``seed`` (see `Fault`);
    a body over ``max_body`` bytes is answered with 413; ``store`` is where acceptances go, memory by default.
    Opening raises OSError where the port is taken.
    """

    def __init__(
        self,
        *,
        port: int = 0,
        faults: Iterable[Fault] = (),
        seed: int = 0,
        api_key: str | None = None,
        max_body: int = 16 * 1024 * 1024,
        store: Store | None = None,
    ) -> None:
        if api_key == "":
            raise ValueError("the api_key must not be empty")
        self.api_key: str = api_key or f"emulator-{random.SystemRandom().getrandbits(64):016x}"
        self._port = port  # the one asked for, then the one bound
        self._seed = seed
        self._max_body = max_body
        self._store = MemoryStore(seed=seed) if store is None else store
        self._own = Inbox(self._store, self.api_key)
        self._rules = Rules(faults, seed=seed)
        self._service: Service | None = None  # set by __aenter__, kept for its counts after the end
        self._connections: Connections | None = None  # set with it, None again after the end

    async def __aenter__(self) -> Self:
        if self._service is not None:
            raise RuntimeError("an Emulator runs once: make another")
        sock = bind(self._port)
        self._port = sock.getsockname()[1]
        guard = Guard(port=self._port, max_body=self._max_body)
        self._service = Service(store=self._store, rules=self._rules, guard=guard)
        self._connections = Connections(self._service, max_body=self._max_body)
        await self._connections.listen(sock)
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        connections, self._connections = self._connections, None
        if connections is not None:
            await connections.aclose()

    @property
    def base_url(self) -> str:
        """Where clients send to, as ``http://127.0.0.1:49152/external/api``."""
        if self._service is None:
            raise RuntimeError("the Emulator has no address yet: use it in `async with`")
        return f"http://{HOST}:{self._port}{PREFIX}"

    @property
    def faults(self) -> Sequence[Fault]:
        """The fault rules, in the order they are tried; set them at any time, see `set_faults`."""
        return self._rules.faults

    @faults.setter
    def faults(self, faults: Iterable[Fault]) -> None:
        self.set_faults(faults)

    def set_faults(self, faults: Iterable[Fault], *, seed: int | None = None) -> None:
        """Replace the rules: all counts and draws start anew, for requests decided from now on."""
        self._seed = self._seed if seed is None else seed
        self._rules = Rules(faults, seed=self._seed)
        if self._service is not None:
            self._service.rules = self._rules

    def hits(self) -> Mapping[str, int]:
        """How many times each rule acted, by its name, or ``"<position>: <action>"`` where it has none."""
        return self._rules.hits()

    @property
    def requests(self) -> int:
        """Every request seen on the wire, whatever its key, refused and failed ones too."""
        return 0 if self._service is None else self._service.requests

    @property
    def pushes(self) -> Sequence[Push]:
        """The push send requests accepted with ``emulator.api_key``, oldest first."""
        return self._own.pushes

    @property
    def campaigns(self) -> Sequence[Campaign]:
        """The campaigns accepted with ``emulator.api_key``, oldest first."""
        return self._own.campaigns

    def inbox(self, api_key: str | None = None) -> Inbox:
        """What was accepted with this key, by default ``emulator.api_key``."""
        return self._own if api_key is None else Inbox(self._store, api_key)

    def accepted(self, user_id: str, *, api_key: str | None = None) -> int:
        """How many pushes to this user were accepted."""
        return self.inbox(api_key).accepted(user_id)

    def users(self, *, api_key: str | None = None) -> Mapping[str, int]:
        """Every user with an accepted push, and how many."""
        return self.inbox(api_key).users()

    def duplicates(self, *, api_key: str | None = None) -> Mapping[str, int]:
        """The users with more than one accepted push, and how many."""
        return self.inbox(api_key).duplicates()

    def totals(self) -> Mapping[str, int]:
        """The counts of ``requests``, and over all keys of ``users``, ``pushes`` and ``campaigns``."""
        inboxes = [Inbox(self._store, api_key) for api_key in self._store.api_keys()]
        return {
            "requests": self.requests,
            "users": sum(len(inbox.users()) for inbox in inboxes),
            "pushes": sum(len(inbox.pushes) for inbox in inboxes),
            "campaigns": sum(len(inbox.campaigns) for inbox in inboxes),
        }

    def reset(self, *, api_key: str | None = None) -> None:
        """Forget what was accepted; without a key also start the faults and the count of requests anew."""
        self.inbox(api_key).forget()
        if api_key is None:
            self.set_faults(self.faults)
            if self._service is not None:
                self._service.requests = 0
