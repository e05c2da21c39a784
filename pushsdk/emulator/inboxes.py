"""The state of each inbox while the service runs: fault rules, limits, and the changes that streams send."""

import threading
from collections import Counter
from typing import Literal

import msgspec

from pushsdk.emulator.faults import Rules
from pushsdk.emulator.guard import Refused
from pushsdk.emulator.limits import Limiter, ServiceLimits
from pushsdk.emulator.store.queries import ALL_INBOXES, InboxRef, Store
from pushsdk.emulator.store.records import InboxView

Kind = Literal["deleted", "faults", "limits", "reset"]
_MAX_INBOXES = 10_000


class InboxState:
    """One inbox while the service runs. A reset replaces ``ref``; the object stays."""

    def __init__(self, ref: InboxRef, *, rules: Rules, limits: ServiceLimits) -> None:
        self.ref = ref
        self.rules: Rules = rules
        self.own_rules: bool = False  # False while the rules are the emulator's; set by set_rules
        self.limiter: Limiter = Limiter(limits)
        # Appended by publish. Streams look for changes by themselves, and for requests in the store.
        self.changes: list[tuple[Kind, int | None]] = []

    def publish(self, kind: Kind, *, only: int | None = None) -> None:
        """Tell streams about a change, ``only`` to the request with this id. Any thread may publish, also a test's."""
        self.changes.append((kind, only))

    def set_rules(self, rules: Rules, *, own: bool = True) -> None:
        """Replace the fault rules, for requests decided from now on."""
        self.rules, self.own_rules = rules, own
        self.publish("faults")

    def set_limits(self, limits: ServiceLimits) -> None:
        """Replace the limits; rate and quota start again."""
        self.limiter = Limiter(limits)
        self.publish("limits")


class Inboxes:
    """The inboxes by public name, created at the first use, by any thread."""

    def __init__(self, store: Store, *, rules: Rules, limits: ServiceLimits) -> None:
        self.store = store
        self.requests: int = 0  # on the wire, refused ones too; counted by the service
        # The rule template for every inbox without its own rules; never applied to a request itself.
        self.rules: Rules = rules
        self.limits = limits
        self._lock = threading.RLock()  # held while a state is created or reset, so that each inbox has one state
        self._states: dict[str, InboxState] = {}  # by public name
        self.all: InboxState = InboxState(ALL_INBOXES, rules=rules, limits=limits)  # only for reading requests

    def set_rules(self, rules: Rules) -> None:
        """Replace the template, and the rules made from it."""
        with self._lock:
            self.rules = rules
            for inbox in self._without_own_rules():
                inbox.set_rules(rules.restarted(), own=False)

    def hits(self) -> dict[str, int]:
        """Return the hits for each rule, summed over the inboxes with the common rules."""
        hits = Counter(self.rules.hits())
        for inbox in self._without_own_rules():
            hits.update(inbox.rules.hits())
        return dict(hits)

    def _without_own_rules(self) -> list[InboxState]:
        return [inbox for inbox in tuple(self._states.values()) if not inbox.own_rules]

    def of(self, api_key: str) -> InboxState:
        """Return the inbox for this key. Raises `Refused` if there are too many, `StoreError` if the store fails."""
        with self._lock:
            found = self._states.get(self.store.name_of(api_key))
            if found is None and len(self._states) >= _MAX_INBOXES:
                raise Refused(507, f"there are {_MAX_INBOXES} inboxes: restart the emulator, or use fewer keys")
            return found or self._state(self.store.inbox(api_key))

    def named(self, name: str) -> InboxState | None:
        """Return the inbox with this public name."""
        with self._lock:
            ref = self.store.named(name)
            return None if ref is None else self._state(ref)

    def views(self) -> list[InboxView]:
        """Return all inboxes, the one with the latest request first."""
        views = [(view, self._states.get(view.inbox, self).rules) for view in self.store.inboxes()]
        return [msgspec.structs.replace(view, faults=len(rules.faults)) for view, rules in views]

    def reset(self, inbox: InboxState) -> None:
        """Empty an inbox and restart its faults and limits. Requests in flight to the inbox are not stored."""
        with self._lock:
            inbox.ref = self.store.reset(inbox.ref)
            inbox.limiter = Limiter(inbox.limiter.limits)
            inbox.rules = inbox.rules.restarted()
        inbox.publish("reset")

    def _state(self, ref: InboxRef) -> InboxState:
        if ref.name not in self._states:
            self._states[ref.name] = InboxState(ref, rules=self.rules.restarted(), limits=self.limits)
        return self._states[ref.name]
