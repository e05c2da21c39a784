"""What the service keeps in memory for each inbox: its faults, its limits, and who watches it."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence

from pushsdk.emulator.faults import Rules
from pushsdk.emulator.limits import Limiter, ServiceLimits
from pushsdk.emulator.live import Live
from pushsdk.emulator.records import Entry
from pushsdk.emulator.store import Box, Store

__all__ = ["Room", "Rooms", "TooMany"]

_MOST = 10_000


class TooMany(Exception):
    """There are as many inboxes as there can be; the text says what to do."""


class Room:
    """One inbox while the service runs. ``box`` changes with a reset, the rest stays."""

    def __init__(self, box: Box, *, rules: Rules, limits: ServiceLimits) -> None:
        self.box = box
        self.rules: Rules = rules
        self.own_rules: bool = False  # set by set_rules; those of the emulator until then
        self.limiter: Limiter = Limiter(limits)
        self.live: Live = Live()

    def set_rules(self, rules: Rules, *, own: bool = True) -> None:
        """Replace its rules, for requests decided from now on."""
        self.rules, self.own_rules = rules, own
        self.live.publish("faults")

    def set_limits(self, limits: ServiceLimits) -> None:
        """Replace its limits; the rate and the quota start anew."""
        self.limiter = Limiter(limits)
        self.live.publish("limits")


class Rooms:
    """The rooms by key and by name, made when they are first asked for, by any thread."""

    def __init__(self, store: Store, *, rules: Rules, limits: ServiceLimits) -> None:
        self._store = store
        self._rules = rules
        self._limits = limits
        self.forgotten: Callable[[], None] = lambda: None  # called when there is room to give back
        self._lock = threading.RLock()  # held while a room is made or begins anew, so that there is one of each
        self._by_key: dict[str, Room] = {}
        self._by_id: dict[int, Room] = {}
        self._by_name: dict[str, Room] = {}

    @property
    def rules(self) -> Rules:
        """What every inbox begins with that is given none of its own. It never acts itself."""
        return self._rules

    @rules.setter
    def rules(self, rules: Rules) -> None:
        with self._lock:
            self._rules = rules
            for room in self._following():
                room.set_rules(_anew(rules), own=False)

    def hits(self) -> dict[str, int]:
        """How often each of these acted, over the inboxes that have no other."""
        hits = Counter(self._rules.hits())
        for room in self._following():
            hits.update(room.rules.hits())
        return dict(hits)

    def _following(self) -> list[Room]:
        return [room for room in tuple(self._by_id.values()) if not room.own_rules]

    def of(self, api_key: str) -> Room:
        """The room of this key. Raises `TooMany`, and `StoreError` where it is new and can't be stored."""
        room = self._by_key.get(api_key)
        if room is not None:
            return room
        with self._lock:
            if len(self._by_key) >= _MOST and api_key not in self._by_key:
                raise TooMany(f"there are {_MOST} inboxes: start the emulator anew, or use fewer keys")
            room = self._by_key[api_key] = self._of(self._store.box(api_key))
            return room

    def named(self, name: str) -> Room | None:
        """The room of the inbox with this name."""
        room = self._by_name.get(name)
        if room is not None:
            return room
        with self._lock:
            box = self._store.named(name)
            return None if box is None else self._of(box)

    def reset(self, room: Room) -> None:
        """Forget all of an inbox; its faults and its limits begin anew. What is on its way to it stays out."""
        with self._lock:
            former, box = room.box, self._store.forget(room.box)
            del self._by_id[former.id]
            self._place(room, box)
            room.limiter = Limiter(room.limiter.limits)
            room.rules = _anew(room.rules)
        room.live.publish("reset")
        self.forgotten()

    def stored(self, entries: Sequence[Entry]) -> None:
        """Tell each inbox what came."""
        ids: dict[int, list[int]] = {}
        for entry in entries:
            ids.setdefault(entry.inbox, []).append(entry.id)
        for inbox, there in ids.items():
            if (room := self._by_id.get(inbox)) is not None:
                room.live.publish("request", first=there[0], last=there[-1])

    def campaign(self, inbox: int, uuid: str) -> None:
        """Tell an inbox that a campaign changed."""
        if (room := self._by_id.get(inbox)) is not None:
            room.live.publish("campaign", name=uuid)

    def reached(self, inbox: int, users: int) -> None:
        """Count whom a campaign reached against the quota of its inbox."""
        if (room := self._by_id.get(inbox)) is not None:
            room.limiter.took(users)

    def _of(self, box: Box) -> Room:
        room = self._by_id.get(box.id)
        if room is None:
            room = Room(box, rules=_anew(self._rules), limits=self._limits)
            self._place(room, box)
        return room

    def _place(self, room: Room, box: Box) -> None:
        room.box = box
        self._by_id[box.id] = room
        self._by_name[box.name] = room


def _anew(rules: Rules) -> Rules:
    """The same rules, without a count."""
    anew = Rules(rules.faults, seed=rules.seed)
    for name, enabled in zip(anew.enabled(), rules.enabled().values(), strict=True):  # a position may name it
        anew.enable(name, enabled)
    return anew
