"""The fault rules, sans-IO: the conditions of a rule, the choice of the rule that acts on a request, the counts.

Rules are tried in order. Matching delays add up; the first other matching rule acts and ends the search. So at most one
rule besides the delays acts on a request, and later rules do not see the request.

A rule counts the requests that reach it and meet its static conditions (``endpoint``, ``user``, ``more_than_users``,
``more_than_bytes``). Of the counted requests the rule acts on those within the ``first`` N that are an ``every`` Nth
(N, 2N, ...) and win a draw of ``probability``. Each rule draws one number per counted request from its own generator,
seeded with the seed and the position of the rule. Omitted conditions always hold.

A disabled rule counts no request and draws no number, so after it is enabled again it continues at the same count.
"""

import random
from collections.abc import Iterable, Mapping
from typing import Annotated, ClassVar, Literal, TypedDict, TypeVar, Unpack

import msgspec
from msgspec import Meta, Struct

Count = Annotated[int, Meta(ge=0)]
Ordinal = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(ge=0, le=86_400)]
# The emulator sets the framing of responses; use `Fault.truncated` for a broken one.
_FRAMING = frozenset({"content-length", "transfer-encoding", "connection"})


class Conditions(TypedDict, total=False):
    """The conditions of a fault, all optional; all given ones must hold (see the module's docstring)."""

    name: str
    endpoint: Literal["push", "campaigns"]
    user: str
    more_than_users: int
    more_than_bytes: int
    first: int
    every: int
    probability: float


class Fault(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="fault"):
    """One rule: an action, created by one of the methods below, and its conditions.

    ``name`` is the key in `Emulator.hits`. ``endpoint`` is ``"push"`` or ``"campaigns"``; ``user`` is an id that the
    request contains; the request has ``more_than_users`` users and a body of ``more_than_bytes`` bytes. ``first``,
    ``every`` and ``probability`` choose among these requests. Raises ValueError for invalid values.
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
        """True if the service accepts the request before the fault."""
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
        """Respond with this status; by default the request is accepted if the status is 2xx."""
        return _make(StatusFault, code=code, headers=headers or {}, body=body, accepted=accepted, **when)

    @staticmethod
    def delay(seconds: float, **when: Unpack[Conditions]) -> "Fault":
        """Wait, then accept the request even if the client has disconnected. Later rules may act, too."""
        return _make(DelayFault, seconds=seconds, **when)

    @staticmethod
    def reset_before(**when: Unpack[Conditions]) -> "Fault":
        """Read the whole request, then reset the connection without accepting the request."""
        return _make(ResetBeforeFault, **when)

    @staticmethod
    def reset_after(**when: Unpack[Conditions]) -> "Fault":
        """Accept the request, then reset the connection without a response."""
        return _make(ResetAfterFault, **when)

    @staticmethod
    def hang(*, accepted: bool = False, **when: Unpack[Conditions]) -> "Fault":
        """Never respond, until the client disconnects or the emulator closes."""
        return _make(HangFault, accepted=accepted, **when)

    @staticmethod
    def truncated(*, at: Literal["status", "headers", "body"] = "headers", **when: Unpack[Conditions]) -> "Fault":
        """Accept the request, then cut the response in its status line, headers or body, and close the connection."""
        return _make(TruncatedFault, at=at, **when)


class StatusFault(Fault, frozen=True, tag="status"):
    """See `Fault.status`. Statuses of 600 and above are not HTTP, but some gateways use them."""

    code: Annotated[int, Meta(ge=200, le=999)]
    headers: dict[str, str] = {}
    body: str = ""
    accepted: bool | None = None

    def __post_init__(self) -> None:
        for name, value in self.headers.items():
            if name.lower() in _FRAMING:
                raise ValueError(f"headers must not contain {name}, which the emulator sets: leave it out")
            if not name or any(character in name + value for character in "\r\n\0"):
                raise ValueError("a header must have a name, and no line break in its value")

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
        raise ValueError(f"invalid fault: {error}") from None


def load_faults(data: bytes | str) -> list[Fault]:
    """Read rules from JSON: ``[{"fault": "status", "code": 429, "first": 3}, {"fault": "reset_after"}]``.

    ``fault`` is the name of a method of `Fault`, the rest its arguments. Raises ValueError with the path of the error.
    """
    return list(msgspec.json.decode(data, type=list[AnyFault]))


def read_faults(rules: object) -> list[Fault]:
    """Read rules from decoded JSON, as `load_faults` does."""
    return list(msgspec.convert(rules, type=list[AnyFault]))


class FaultDecision(Struct, frozen=True):
    """The fate of one request: a delay in seconds, then the fault, or acceptance if ``fault`` is None.

    ``rule`` is the name of the last rule that acts.
    """

    delay: float = 0.0
    fault: Fault | None = None
    rule: str | None = None


_NO_FAULT = FaultDecision()


class _Rule:
    """A fault with its counts."""

    def __init__(self, fault: Fault, *, name: str, seed: str) -> None:
        self.fault = fault
        self.name = name
        self.seen = 0  # requests that met the static conditions
        self.hits = 0
        self.enabled = True  # set by Rules.enable
        self.random = random.Random(seed)  # noqa: S311 - must be reproducible

    def hit(self, endpoint: str, user_ids: tuple[str, ...], size: int) -> bool:
        """Count this request; return True if the rule acts on the request."""
        if not _matches(self.fault, endpoint, user_ids, size):
            return False
        self.seen += 1
        hit = _is_chosen(self.fault, self.seen, self.random.random())
        self.hits += hit
        return hit


def _matches(fault: Fault, endpoint: str, user_ids: tuple[str, ...], size: int) -> bool:
    return (
        (fault.endpoint is None or fault.endpoint == endpoint)
        and (fault.user is None or fault.user in user_ids)
        and (fault.more_than_users is None or len(user_ids) > fault.more_than_users)
        and (fault.more_than_bytes is None or size > fault.more_than_bytes)
    )


def _is_chosen(fault: Fault, ordinal: int, draw: float) -> bool:
    return (
        (fault.first is None or ordinal <= fault.first)
        and (fault.every is None or ordinal % fault.every == 0)
        and (fault.probability is None or draw < fault.probability)
    )


class Rules:
    """An ordered list of faults with their counts, deterministic for a seed and an order of requests.

    The rules of ``then`` are tried after these, and share their counts with ``then``.
    """

    def __init__(self, faults: Iterable[Fault] = (), *, seed: int = 0, then: "Rules | None" = None) -> None:
        self.faults: tuple[Fault, ...] = tuple(faults)
        self.seed = seed
        self._rules: list[_Rule] = []
        others = then._rules if then is not None else []
        for position, fault in enumerate(self.faults, start=1):
            if not isinstance(fault, Fault):
                kind = type(fault).__name__
                raise TypeError(f"fault {position} must be a Fault, for example Fault.status(429); got {kind}")
            name = fault.name or f"{len(others) + position}: {fault.__struct_config__.tag}"
            self._rules.append(_Rule(fault, name=name, seed=f"{seed}:{position}"))
        self._rules += others
        self.faults += tuple(rule.fault for rule in others)
        if len(self.hits()) < len(self._rules):
            raise ValueError("names of faults must be unique")

    def decide(self, endpoint: str, user_ids: tuple[str, ...], size: int) -> FaultDecision:
        """Return the decision for a request of ``size`` bytes; ``user_ids`` is empty for a campaign."""
        if not self._rules:
            return _NO_FAULT
        delay, name = 0.0, None
        for rule in self._rules:
            if rule.enabled and rule.hit(endpoint, user_ids, size):
                name = rule.name
                if not isinstance(rule.fault, DelayFault):
                    return FaultDecision(delay, rule.fault, name)
                delay += rule.fault.seconds
        return FaultDecision(delay, None, name)

    def restarted(self) -> "Rules":
        """Return the same rules with counts and draws at their start. Disabled rules stay disabled."""
        rules = Rules(self.faults, seed=self.seed)
        for rule, before in zip(rules._rules, self._rules, strict=True):
            rule.enabled = before.enabled
        return rules

    def hits(self) -> dict[str, int]:
        """Return the number of requests that each rule acted on, by name or ``"<position>: <action>"``."""
        return {rule.name: rule.hits for rule in self._rules}

    def enable(self, name: str, enabled: bool) -> None:
        """Enable or disable a rule by its name in `hits`; its counts stay. Raises ValueError for an unknown name."""
        rule = next((rule for rule in self._rules if rule.name == name), None)
        if rule is None:
            raise ValueError(f"no fault has this name; the names are: {', '.join(self.hits()) or 'none'}")
        rule.enabled = enabled

    def enabled(self) -> dict[str, bool]:
        """Return the names of `hits`, each with True if the rule is enabled."""
        return {rule.name: rule.enabled for rule in self._rules}


class Preset(Struct, frozen=True, kw_only=True):
    """A named list of rules: its subject, the rules in order, and an explanation of each rule by name."""

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
        "one request in ten fails",
        ("5 % are answered with 503, and were not accepted", Fault.status(503, probability=0.05, name="busy")),
        ("3 % are reset before they are accepted", Fault.reset_before(probability=0.03, name="reset-before")),
        ("3 % are accepted, then reset without a response", Fault.reset_after(probability=0.03, name="reset-after")),
    ),
    "ratelimited": _preset(
        "one request in four is over the rate",
        (
            "every 4th is answered with 429 and Retry-After: 1",
            Fault.status(429, headers={"Retry-After": "1"}, every=4, name="too-many"),
        ),
    ),
    "brownout": _preset(
        "a slow service behind a gateway that times out first",
        ("half of all requests wait half a second", Fault.delay(0.5, probability=0.5, name="slow")),
        ("one in ten waits two more seconds", Fault.delay(2.0, probability=0.1, name="very-slow")),
        (
            "one in ten is accepted, then answered with 504",
            Fault.status(504, accepted=True, probability=0.1, name="gateway"),
        ),
    ),
    "outage": _preset(
        "down at first, then healthy",
        ("the first 10 are reset before they are accepted", Fault.reset_before(first=10, name="down")),
        ("the next 20 are answered with 503, and were not accepted", Fault.status(503, first=20, name="starting")),
    ),
    "poison-user": _preset(
        "one user id makes the service reject the whole request",
        (
            'requests with the user "poison" are answered with 400, and were not accepted',
            Fault.status(400, body='{"error": "a user id is not valid"}', user="poison", name="poison"),
        ),
    ),
}


def preset(name: str) -> Preset:
    """Return the preset of this name. Raises ValueError with all names."""
    if name not in PRESETS:
        raise ValueError(f"no such preset; the presets are: {', '.join(sorted(PRESETS))}")
    return PRESETS[name]
