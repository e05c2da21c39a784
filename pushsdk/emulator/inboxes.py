"""What the service keeps in memory for each inbox: its faults, its limits, and the log of what changed in it."""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections import Counter, deque
from collections.abc import Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

from pushsdk.emulator.faults import Rules
from pushsdk.emulator.guard import Refused
from pushsdk.emulator.limits import Limiter, ServiceLimits
from pushsdk.emulator.store.queries import InboxRef, Store
from pushsdk.emulator.store.records import RequestRecord

__all__ = ["Event", "EventLog", "InboxState", "Inboxes"]

Kind: TypeAlias = Literal["request", "campaign", "deleted", "faults", "limits", "reset"]
_MOST = 10_000
_KEPT = 1000  # events; a reader who is further behind reads the lists anew


class Event(Struct, frozen=True):
    """A change. ``first`` and ``last`` are the ids of the requests that came, ``name`` a campaign's uuid."""

    mark: int
    kind: Kind
    first: int = 0
    last: int = 0
    name: str = ""


class EventLog:
    """The newest events of one inbox. Marks count up, and are valid for this process: see ``boot``.

    Any thread may publish: faults are set, and inboxes reset, by tests in theirs.
    """

    def __init__(self) -> None:
        self.boot: str = secrets.token_hex(4)
        self.mark: int = 0  # of the newest event, 0 before the first; set by publish
        self._lock = threading.Lock()  # for the three that change together
        self._events: deque[Event] = deque(maxlen=_KEPT)
        self._waiting: set[asyncio.Future[None]] = set()

    def publish(self, kind: Kind, *, first: int = 0, last: int = 0, name: str = "") -> None:
        """Add an event and wake all waiters."""
        with self._lock:
            self.mark += 1
            self._events.append(Event(self.mark, kind, first, last, name))
            waiting, self._waiting = self._waiting, set()
        for each in waiting:
            each.get_loop().call_soon_threadsafe(_wake, each)

    def since(self, mark: int) -> Sequence[Event] | None:
        """Return the events after this mark, oldest first; None if some are dropped, or the mark is not ours."""
        with self._lock:
            if not self.mark - len(self._events) <= mark <= self.mark:
                return None
            return [event for event in self._events if event.mark > mark]

    async def changed(self, mark: int) -> None:
        """Wait until there is an event after this mark."""
        while True:
            with self._lock:
                if self.mark > mark:
                    return
                waiting = asyncio.get_running_loop().create_future()
                self._waiting.add(waiting)
            try:
                await waiting
            finally:
                with self._lock:
                    self._waiting.discard(waiting)


def _wake(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)


class InboxState:
    """One inbox while the service runs. ``ref`` changes with a reset, the rest stays."""

    def __init__(self, ref: InboxRef, *, rules: Rules, limits: ServiceLimits) -> None:
        self.ref = ref
        self.rules: Rules = rules
        self.own_rules: bool = False  # set by set_rules; those of the emulator until then
        self.limiter: Limiter = Limiter(limits)
        self.events: EventLog = EventLog()

    def set_rules(self, rules: Rules, *, own: bool = True) -> None:
        """Replace its rules, for requests decided from now on."""
        self.rules, self.own_rules = rules, own
        self.events.publish("faults")

    def set_limits(self, limits: ServiceLimits) -> None:
        """Replace its limits; the rate and the quota start anew."""
        self.limiter = Limiter(limits)
        self.events.publish("limits")


class Inboxes:
    """The inboxes by key and by name, made when first asked for, by any thread."""

    def __init__(self, store: Store, *, rules: Rules, limits: ServiceLimits) -> None:
        self._store = store
        self._rules = rules
        self._limits = limits
        self._lock = threading.RLock()  # held while an inbox is made or reset, so that there is one state of each
        self._by_key: dict[str, InboxState] = {}
        self._by_id: dict[int, InboxState] = {}

    @property
    def rules(self) -> Rules:
        """The rules of every inbox that is given none of its own. These never act themselves."""
        return self._rules

    @rules.setter
    def rules(self, rules: Rules) -> None:
        with self._lock:
            self._rules = rules
            for inbox in self._following():
                inbox.set_rules(rules.anew(), own=False)

    def hits(self) -> dict[str, int]:
        """Return how often each of these rules acted, over the inboxes that have no other."""
        hits = Counter(self._rules.hits())
        for inbox in self._following():
            hits.update(inbox.rules.hits())
        return dict(hits)

    def _following(self) -> list[InboxState]:
        return [inbox for inbox in tuple(self._by_id.values()) if not inbox.own_rules]

    def of(self, api_key: str) -> InboxState:
        """Return the inbox of this key. Raises `Refused` if there are too many, `StoreError` if it can't be stored."""
        inbox = self._by_key.get(api_key)
        if inbox is not None:
            return inbox
        with self._lock:
            if len(self._by_key) >= _MOST and api_key not in self._by_key:
                raise Refused(507, f"there are {_MOST} inboxes: start the emulator anew, or use fewer keys")
            inbox = self._by_key[api_key] = self._state(self._store.inbox(api_key))
            return inbox

    def named(self, name: str) -> InboxState | None:
        """Return the inbox with this public name."""
        with self._lock:
            ref = self._store.named(name)
            return None if ref is None else self._state(ref)

    def reset(self, inbox: InboxState) -> None:
        """Drop all of an inbox; its faults and its limits begin anew. What is in flight to it is not stored."""
        with self._lock:
            former, inbox.ref = inbox.ref, self._store.reset(inbox.ref)
            del self._by_id[former.id]
            self._by_id[inbox.ref.id] = inbox
            inbox.limiter = Limiter(inbox.limiter.limits)
            inbox.rules = inbox.rules.anew()
        inbox.events.publish("reset")

    def stored(self, entries: Sequence[RequestRecord]) -> None:
        """Publish to each inbox what came."""
        ids: dict[int, list[int]] = {}
        for entry in entries:
            ids.setdefault(entry.inbox, []).append(entry.id)
        for inbox, stored in ids.items():
            if (state := self._by_id.get(inbox)) is not None:
                state.events.publish("request", first=stored[0], last=stored[-1])

    def campaign(self, inbox: int, uuid: str) -> None:
        """Publish to an inbox that a campaign changed."""
        if (state := self._by_id.get(inbox)) is not None:
            state.events.publish("campaign", name=uuid)

    def reached(self, inbox: int, users: int) -> None:
        """Count the recipients of a campaign against the quota of its inbox."""
        if (state := self._by_id.get(inbox)) is not None:
            state.limiter.took(users)

    def _state(self, ref: InboxRef) -> InboxState:
        inbox = self._by_id.get(ref.id)
        if inbox is None:
            inbox = self._by_id[ref.id] = InboxState(ref, rules=self._rules.anew(), limits=self._limits)
        return inbox
