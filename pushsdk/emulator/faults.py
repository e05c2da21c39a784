"""The fault rules, sans-IO: what a rule may say, which one acts on a request, how often each did.

Rules are tried in order. A delay that matches adds up and the search goes on; the first other rule that matches acts
and ends it. So at most one rule beside the delays acts on a request, and the rules behind it do not see it.

A rule counts the requests that reach it and meet all its static conditions (``endpoint``, ``user``,
``more_than_users``, ``more_than_bytes``). Among the requests so counted it hits those that are within the ``first`` N,
and are an ``every`` Nth (N, 2N, ...), and win a draw of ``probability``; one number is drawn for each counted request,
by a generator of the rule's own, seeded with the seed and the rule's position. Conditions left out always hold.

A rule that is switched off is as good as not there: it counts no request and draws no number. Switched on again it
goes on where it was, so ``first`` and ``every`` are about the requests that it was on for.
"""

import random
from collections.abc import Iterable, Mapping
from typing import Annotated, ClassVar, Literal, TypedDict, TypeVar, Unpack

import msgspec
from msgspec import Meta, Struct

__all__ = ["PRESETS", "Conditions", "Fault", "FaultDecision", "Preset", "Rules", "load_faults", "preset", "read_faults"]

Count = Annotated[int, Meta(ge=0)]
Ordinal = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(ge=0, le=86_400)]
# The framing of an answer is the emulator's own: `Fault.truncated` is the way to break it.
_FRAMING = frozenset({"content-length", "transfer-encoding", "connection"})


class Conditions(TypedDict, total=False):
    """When a fault acts; every one may be left out, all that are there must hold (see the head of this file)."""

    name: str
    endpoint: Literal["push", "campaigns"]
    user: str
    more_than_users: int
    more_than_bytes: int
    first: int
    every: int
    probability: float


class Fault(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="fault"):
    """One rule: an action, made by one of the methods below, and the conditions that all of them take.

    ``name`` is for `Emulator.hits`; ``endpoint`` is ``"push"`` or ``"campaigns"``; ``user`` is an id that the request
    contains; ``more_than_users`` and ``more_than_bytes`` (of the body) bound its size from below; ``first``,
    ``every`` and ``probability`` choose among those. A rule that makes no sense raises ValueError at once.
    """

    name: Annotated[str, Meta(min_length=1)] | None = None
    endpoint: Literal["push", "campaigns"] | None = None
    user: str | None = None
    more_than_users: Count | None = None
    more_than_bytes: Count | None = None
    first: Ordinal | None = None
    every: Ordinal | None = None
    probability: Annotated[float, Meta(ge=0, le=1)] | None = None
    _accepts: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if type(self) is Fault:
            raise ValueError("a fault needs an action: Fault.status(...), Fault.delay(...), Fault.reset_after(), ...")

    @property
    def accepts(self) -> bool:
        """Whether the service has accepted the request by the time the fault shows."""
        return self._accepts

    @staticmethod
    def status(
        code: int,
        *,
        headers: Mapping[str, str] | None = None,
        body: str = "",
        accepted: bool | None = None,
        **when: Unpack[Conditions],
    ) -> "Fault":
        """Answer with this status; ``accepted`` says whether after accepting (by default a 2xx did, others did not)."""
        return _make(StatusFault, code=code, headers=headers or {}, body=body, accepted=accepted, **when)

    @staticmethod
    def delay(seconds: float, **when: Unpack[Conditions]) -> "Fault":
        """Wait, then go on to accept, whether the client is still there or not. Other rules may act after it."""
        return _make(DelayFault, seconds=seconds, **when)

    @staticmethod
    def reset_before(**when: Unpack[Conditions]) -> "Fault":
        """Read the whole request, accept nothing, reset the connection."""
        return _make(ResetBeforeFault, **when)

    @staticmethod
    def reset_after(**when: Unpack[Conditions]) -> "Fault":
        """Accept the request, then reset the connection without an answer."""
        return _make(ResetAfterFault, **when)

    @staticmethod
    def hang(*, accepted: bool = False, **when: Unpack[Conditions]) -> "Fault":
        """Never answer, until the client leaves or the emulator closes."""
        return _make(HangFault, accepted=accepted, **when)

    @staticmethod
    def truncated(*, at: Literal["status", "headers", "body"] = "headers", **when: Unpack[Conditions]) -> "Fault":
        """Accept the request, then cut the answer in its status line, its headers or its body, and close."""
        return _make(TruncatedFault, at=at, **when)


class StatusFault(Fault, frozen=True, tag="status"):
    """See `Fault.status`. Statuses of 600 and above are no HTTP, but some gateways make them up."""

    code: Annotated[int, Meta(ge=200, le=999)]
    headers: dict[str, str] = {}
    body: str = ""
    accepted: bool | None = None

    def __post_init__(self) -> None:
        for name, value in self.headers.items():
            if name.lower() in _FRAMING:
                raise ValueError(f"the header {name} is set by the emulator")
            if not name or any(character in name + value for character in "\r\n\0"):
                raise ValueError("a header must be one line with a name")

    @property
    def accepts(self) -> bool:
        return 200 <= self.code < 300 if self.accepted is None else self.accepted


class DelayFault(Fault, frozen=True, tag="delay"):
    """See `Fault.delay`."""

    seconds: Seconds


class ResetBeforeFault(Fault, frozen=True, tag="reset_before"):
    """See `Fault.reset_before`."""


class ResetAfterFault(Fault, frozen=True, tag="reset_after"):
    """See `Fault.reset_after`."""

    _accepts: ClassVar[bool] = True


class HangFault(Fault, frozen=True, tag="hang"):
    """See `Fault.hang`."""

    accepted: bool = False

    @property
    def accepts(self) -> bool:
        return self.accepted


class TruncatedFault(Fault, frozen=True, tag="truncated"):
    """See `Fault.truncated`."""

    at: Literal["status", "headers", "body"] = "headers"
    _accepts: ClassVar[bool] = True


AnyFault = StatusFault | DelayFault | ResetBeforeFault | ResetAfterFault | HangFault | TruncatedFault
Kind = TypeVar("Kind", bound=Fault)


def _make(kind: type[Kind], **fields: object) -> Kind:
    try:
        return msgspec.convert(fields, kind)  # a Struct's own __init__ checks nothing
    except msgspec.ValidationError as error:
        raise ValueError(f"no such fault: {error}") from None


def load_faults(data: bytes | str) -> list[Fault]:
    """Read rules from JSON: ``[{"fault": "status", "code": 429, "first": 3}, {"fault": "reset_after"}]``.

    ``fault`` is the name of the method of `Fault`, the rest its arguments. Raises ValueError naming the place.
    """
    return list(msgspec.json.decode(data, type=list[AnyFault]))


def read_faults(rules: object) -> list[Fault]:
    """The same from decoded JSON. Raises ValueError naming the place."""
    return list(msgspec.convert(rules, type=list[AnyFault]))


class FaultDecision(Struct, frozen=True):
    """What happens to one request: a wait in seconds, then the fault, or acceptance where it is None.

    ``rule`` is the name of the rule that acts, of the last where several do.
    """

    delay: float = 0.0
    fault: Fault | None = None
    rule: str | None = None


_UNHARMED = FaultDecision()


class _Rule:
    """A fault with its counts."""

    def __init__(self, fault: Fault, *, name: str, seed: str) -> None:
        self.fault = fault
        self.name = name
        self.seen = 0  # requests that met the static conditions
        self.hits = 0
        self.enabled = True  # set by Rules.enable
        self.random = random.Random(seed)  # noqa: S311 - retryable is the point

    def hit(self, endpoint: str, user_ids: tuple[str, ...], size: int) -> bool:
        """Count this request, and say whether the rule acts on it."""
        if not _concerns(self.fault, endpoint, user_ids, size):
            return False
        self.seen += 1
        hit = _chosen(self.fault, self.seen, self.random.random())
        self.hits += hit
        return hit


def _concerns(fault: Fault, endpoint: str, user_ids: tuple[str, ...], size: int) -> bool:
    return (
        (fault.endpoint is None or fault.endpoint == endpoint)
        and (fault.user is None or fault.user in user_ids)
        and (fault.more_than_users is None or len(user_ids) > fault.more_than_users)
        and (fault.more_than_bytes is None or size > fault.more_than_bytes)
    )


def _chosen(fault: Fault, ordinal: int, draw: float) -> bool:
    return (
        (fault.first is None or ordinal <= fault.first)
        and (fault.every is None or ordinal % fault.every == 0)
        and (fault.probability is None or draw < fault.probability)
    )


class Rules:
    """An ordered list of faults with their counts, deterministic for a seed and an order of requests.

    The rules of ``behind`` are tried after these, and go on counting, here as there.
    """

    def __init__(self, faults: Iterable[Fault] = (), *, seed: int = 0, behind: "Rules | None" = None) -> None:
        self.faults: tuple[Fault, ...] = tuple(faults)
        self.seed = seed
        self._rules: list[_Rule] = []
        others = behind._rules if behind is not None else []
        for position, fault in enumerate(self.faults, start=1):
            if not isinstance(fault, Fault):
                raise TypeError(f"fault {position} is a {type(fault).__name__}, not a Fault")
            name = fault.name or f"{len(others) + position}: {fault.__struct_config__.tag}"
            self._rules.append(_Rule(fault, name=name, seed=f"{seed}:{position}"))
        self._rules += others
        self.faults += tuple(rule.fault for rule in others)
        if len(self.hits()) < len(self._rules):
            raise ValueError("two faults have the same name")

    def decide(self, endpoint: str, user_ids: tuple[str, ...], size: int) -> FaultDecision:
        """What happens to the request of ``size`` bytes; ``user_ids`` is empty for a campaign."""
        if not self._rules:
            return _UNHARMED
        delay, name = 0.0, None
        for rule in self._rules:
            if rule.enabled and rule.hit(endpoint, user_ids, size):
                name = rule.name
                if not isinstance(rule.fault, DelayFault):
                    return FaultDecision(delay, rule.fault, name)
                delay += rule.fault.seconds
        return FaultDecision(delay, None, name)

    def anew(self) -> "Rules":
        """Return the same rules with counts and draws at their start. A rule that is switched off stays off."""
        anew = Rules(self.faults, seed=self.seed)
        for rule, before in zip(anew._rules, self._rules, strict=True):
            rule.enabled = before.enabled
        return anew

    def hits(self) -> dict[str, int]:
        """How many times each rule acted; a rule without a name is called ``"<position>: <action>"``."""
        return {rule.name: rule.hits for rule in self._rules}

    def enable(self, name: str, enabled: bool) -> None:
        """Switch a rule on or off; its counts stay. Raises ValueError where no rule has this name, as in `hits`."""
        rule = next((rule for rule in self._rules if rule.name == name), None)
        if rule is None:
            raise ValueError(f"no fault has this name; there are: {', '.join(self.hits()) or 'none at all'}")
        rule.enabled = enabled

    def enabled(self) -> dict[str, bool]:
        """Whether each rule is on, as each is at first; by the names of `hits`."""
        return {rule.name: rule.enabled for rule in self._rules}


class Preset(Struct, frozen=True, kw_only=True):
    """A bad day: what it is ``about``, its rules in their order, and what each does, by its name."""

    about: str
    faults: tuple[Fault, ...]
    explained: dict[str, str]


def _preset(about: str, *rules: tuple[str, Fault]) -> Preset:
    return Preset(
        about=about,
        faults=tuple(fault for _, fault in rules),
        explained={fault.name or "": line for line, fault in rules},
    )


PRESETS: dict[str, Preset] = {
    "flaky": _preset(
        "one request in ten fails in some way",
        ("5 % are answered with 503, and were not accepted", Fault.status(503, probability=0.05, name="busy")),
        ("3 % are reset before they are accepted", Fault.reset_before(probability=0.03, name="reset-before")),
        ("3 % are accepted, then reset without an answer", Fault.reset_after(probability=0.03, name="reset-after")),
    ),
    "ratelimited": _preset(
        "one request in four comes too early",
        (
            "every 4th is answered with 429 and Retry-After: 1",
            Fault.status(429, headers={"Retry-After": "1"}, every=4, name="too-many"),
        ),
    ),
    "brownout": _preset(
        "slow, and behind a gateway that gives up before the service does",
        ("half of them wait half a second", Fault.delay(0.5, probability=0.5, name="slow")),
        ("one in ten waits two seconds more", Fault.delay(2.0, probability=0.1, name="very-slow")),
        (
            "one in ten is accepted, then answered with 504",
            Fault.status(504, accepted=True, probability=0.1, name="gateway"),
        ),
    ),
    "outage": _preset(
        "down at first, then well again",
        ("the first 10 are reset before they are accepted", Fault.reset_before(first=10, name="down")),
        ("the next 20 are answered with 503, and were not accepted", Fault.status(503, first=20, name="starting")),
    ),
    "poison-user": _preset(
        "one user id spoils every request it is in",
        (
            'requests with the user "poison" are answered with 400, and were not accepted',
            Fault.status(400, body='{"error": "a user id is not valid"}', user="poison", name="poison"),
        ),
    ),
}


def preset(name: str) -> Preset:
    """The preset of this name. Raises ValueError with the names there are."""
    found = PRESETS.get(name)
    if found is None:
        raise ValueError(f"no such preset; there are: {', '.join(sorted(PRESETS))}")
    return found
