"""The fault rules, sans-IO: the conditions of a rule, the choice between rules that match a request, the counts.

The emulator and `pushsdk.testing.FakeService` have the same rules.

docs/testing.md says which rule acts on which request. Each rule draws one number per counted request from its own
generator, seeded with the seed and the rule's position.
"""

import inspect
import random
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Literal, TypedDict, Unpack

import msgspec
from msgspec import Struct
from multidict import CIMultiDict

from pushsdk._core.kinds import Count, CountOrZero, Delay, NonEmpty, Probability, Rule, check, check_fields
from pushsdk._texts import text_beside

__tracebackhide__ = True  # by pytest: a failure shows the line in the test
# The emulator sets the response framing; use `Fault.truncated` for a broken one.
_FRAMING = frozenset({"content-length", "transfer-encoding", "connection"})


class Conditions(TypedDict, total=False):
    """The conditions of a fault, all optional; all given ones must hold (see `pushsdk docs testing`)."""

    name: str
    endpoint: Literal["push", "campaigns"]
    user: str
    more_than_users: int
    more_than_bytes: int
    first: int
    every: int
    probability: float


UNCONNECTED = frozenset({"refused", "unreachable"})
"""The actions that come before the connection is open, so only `FakeService` has them."""
_Action = Literal["status", "delay", "reset_before", "reset_after", "hang", "truncated", "refused", "unreachable"]


class Fault(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One rule: an action, created by one of the methods below, and its conditions.

    ``name`` is the key in `Emulator.hits`. ``endpoint`` is ``"push"`` or ``"campaigns"``; ``user`` is an id that the
    request contains; the request has ``more_than_users`` users and a body of ``more_than_bytes`` bytes. ``first``,
    ``every`` and ``probability`` choose among these requests. Raises ValueError for invalid values.
    """

    fault: _Action
    # Arguments for the action; statuses from 600 are not HTTP, but some gateways use them.
    code: Annotated[int, Rule("a status from 200 to 999", range(200, 1000).__contains__)] | None = None
    headers: dict[str, str] = {}
    body: str = ""
    retry_after: CountOrZero | None = None
    accepted: bool | None = None
    seconds: Delay | None = None
    at: Literal["status", "headers", "body"] | None = None
    # Conditions
    name: NonEmpty | None = None
    endpoint: Literal["push", "campaigns"] | None = None
    user: str | None = None
    more_than_users: CountOrZero | None = None
    more_than_bytes: CountOrZero | None = None
    first: Count | None = None
    every: Count | None = None
    probability: Probability | None = None

    def __post_init__(self) -> None:
        check_fields(self, ValueError)
        self._check_arguments()
        if self.first and self.every and self.first < self.every:
            raise ValueError(f"first={self.first} and every={self.every} choose no request: leave out one of them")
        for name, value in self.headers.items():
            _check_header(name, value)
        if self.retry_after is not None and "retry-after" in map(str.lower, self.headers):
            raise ValueError("Retry-After is given twice, by retry_after= and in headers=: leave one out")

    def _check_arguments(self) -> None:
        """Check which arguments are given: those of the method that is named like the action, and all that it needs."""
        parameters = inspect.signature(getattr(Fault, self.fault)).parameters
        for name in sorted({*self.__struct_fields__} - {"fault", *Conditions.__annotations__}):
            is_given = getattr(self, name) not in (None, {}, "")
            if is_given and name not in parameters:
                raise ValueError(f"{name} is not an argument of {self.fault}: leave it out")
            if name in parameters and not is_given and parameters[name].default is inspect.Parameter.empty:
                raise ValueError(f"{self.fault} needs {name}")

    def __repr__(self) -> str:
        fields = msgspec.to_builtins(self)  # without defaults
        return f"Fault.{fields.pop('fault')}({', '.join(f'{name}={value!r}' for name, value in fields.items())})"

    @property
    def accepts(self) -> bool:
        """True if the service accepts the request before the fault."""
        if self.accepted is not None:
            return self.accepted
        return self.fault in ("reset_after", "truncated") or 200 <= (self.code or 0) < 300

    @staticmethod
    def status(
        code: int,
        *,
        headers: Mapping[str, str] | None = None,
        body: str = "",
        retry_after: int | None = None,
        accepted: bool | None = None,
        **when: Unpack[Conditions],
    ) -> "Fault":
        """Respond with this status; by default the request is accepted if the status is 2xx.

        ``retry_after``, in seconds, is sent as the header Retry-After.
        """
        return Fault(
            fault="status",
            code=code,
            headers=dict(headers or {}),
            body=body,
            retry_after=retry_after,
            accepted=accepted,
            **when,
        )

    @staticmethod
    def delay(seconds: float, **when: Unpack[Conditions]) -> "Fault":
        """Wait, then accept the request even if the client has disconnected. Later rules may act, too."""
        fault = Fault(fault="delay", seconds=seconds, **when)
        if seconds >= 300:
            warnings.warn(f"Fault.delay({seconds:g}) is in seconds, and longer than most timeouts", stacklevel=2)
        return fault

    @staticmethod
    def reset_before(**when: Unpack[Conditions]) -> "Fault":
        """Read the whole request, then reset the connection without accepting the request."""
        return Fault(fault="reset_before", **when)

    @staticmethod
    def reset_after(**when: Unpack[Conditions]) -> "Fault":
        """Accept the request, then reset the connection without a response."""
        return Fault(fault="reset_after", **when)

    @staticmethod
    def hang(*, accepted: bool = False, **when: Unpack[Conditions]) -> "Fault":
        """Never respond, until the client disconnects or the service closes."""
        return Fault(fault="hang", accepted=accepted, **when)

    @staticmethod
    def truncated(*, at: Literal["status", "headers", "body"] = "headers", **when: Unpack[Conditions]) -> "Fault":
        """Accept the request, then cut the response in its status line, headers or body, and close the connection."""
        return Fault(fault="truncated", at=at, **when)

    @staticmethod
    def refused(**when: Unpack[Conditions]) -> "Fault":
        """Refuse the connection, which proves to the client that nothing was sent. Only for `FakeService`."""
        return Fault(fault="refused", **when)

    @staticmethod
    def unreachable(**when: Unpack[Conditions]) -> "Fault":
        """Never open the connection, until the client gives up. Only for `FakeService`."""
        return Fault(fault="unreachable", **when)


def headers_of(fault: Fault) -> CIMultiDict[str]:
    """Return the headers that are sent: Retry-After and Content-Type among them."""
    headers = CIMultiDict(fault.headers)
    if fault.retry_after is not None:
        headers["Retry-After"] = str(fault.retry_after)
    if fault.body:
        headers.setdefault("Content-Type", "application/json")
    return headers


def _check_header(name: str, value: str) -> None:
    if name.lower() in _FRAMING:
        raise ValueError(f"headers must not contain {name}, which the emulator sets: leave it out")
    if not name or not (name + value).isprintable():
        raise ValueError("a header must have a name, and no control character in name or value")


def load_faults(data: bytes | str) -> list[Fault]:
    """Read rules from JSON: ``[{"fault": "status", "code": 429, "first": 3}, {"fault": "reset_after"}]``.

    ``fault`` is the name of a `Fault` method, the rest its arguments. Raises ValueError with the error's path.
    """
    check("data", data, bytes | str, ValueError)
    try:
        return msgspec.json.decode(data, type=list[Fault])
    except (RecursionError, ValueError) as error:
        raise ValueError(f"faults must be JSON, a list of objects: {error}") from None


class FaultDecision(Struct, frozen=True):
    """The fate of one request: a delay in seconds, then the fault, or acceptance if ``fault`` is None.

    ``rule`` names the last rule that acts.
    """

    delay: float = 0.0
    fault: Fault | None = None
    rule: str | None = None


class FaultRule:
    """A fault with its counts."""

    def __init__(self, fault: Fault, *, seed: str) -> None:
        self.fault = fault
        self.seen: int = 0  # requests that met the static conditions
        self.hits: int = 0
        self.random: random.Random = random.Random(seed)  # noqa: S311 - must be reproducible

    def counts(self, endpoint: str, user_ids: tuple[str, ...], size: int) -> bool:
        """Return True if the request meets the conditions that look at the request itself."""
        fault = self.fault
        return (
            fault.endpoint in (None, endpoint)
            and (fault.user is None or fault.user in user_ids)
            and (fault.more_than_users is None or len(user_ids) > fault.more_than_users)
            and (fault.more_than_bytes is None or size > fault.more_than_bytes)
        )

    def hit(self) -> bool:
        """Count a request; return True if the rule acts on the request."""
        fault = self.fault
        self.seen += 1
        draw = self.random.random()
        hit = (
            (fault.first is None or self.seen <= fault.first)
            and (fault.every is None or self.seen % fault.every == 0)
            and (fault.probability is None or draw < fault.probability)
        )
        self.hits += hit
        return hit


class Rules:
    """An ordered fault list with counts, deterministic for a seed and a request order.

    The rules in ``then`` are tried after these, and share their counts with ``then``. Rules for a service with
    ``connected`` clients have no fault before the connection is open.
    """

    def __init__(
        self, faults: Iterable[Fault], *, seed: int = 0, then: "Rules | None" = None, connected: bool = True
    ) -> None:
        check("faults", faults, Iterable, ValueError)
        faults = tuple(faults)
        check("faults", faults, Sequence[Fault], ValueError)
        self.seed = seed
        self.rules: dict[str, FaultRule] = {}  # by name, in the order they are tried
        others = {} if then is None else then.rules
        for position, fault in enumerate(faults, start=1):
            if connected and fault.fault in UNCONNECTED:
                raise ValueError(f"faults[{position - 1}] must act on a request; got {fault}, which FakeService has")
            name = fault.name or f"{len(others) + position}: {fault.fault}"
            if name in self.rules or name in others:
                raise ValueError("names of faults must be unique")
            self.rules[name] = FaultRule(fault, seed=f"{seed}:{position}")
        self.rules |= others

    @property
    def faults(self) -> tuple[Fault, ...]:
        """The fault for each rule."""
        return tuple(rule.fault for rule in self.rules.values())

    def decide(self, endpoint: str, user_ids: tuple[str, ...], size: int, *, connecting: bool = False) -> FaultDecision:
        """Return the decision for a request with ``size`` bytes; ``user_ids`` is empty for a campaign.

        With ``connecting``, only the faults before the connection is open are tried, otherwise only the others.
        """
        delay, last = 0.0, None
        for name, rule in self.rules.items():
            is_tried = (rule.fault.fault in UNCONNECTED) is connecting
            if is_tried and rule.counts(endpoint, user_ids, size) and rule.hit():
                last = name
                if rule.fault.seconds is None:
                    return FaultDecision(delay, rule.fault, name)
                delay += rule.fault.seconds
        return FaultDecision(delay, None, last)

    def restarted(self) -> "Rules":
        """Return the same rules with counts and draws at their start."""
        return Rules(self.faults, seed=self.seed)

    def hits(self) -> dict[str, int]:
        """Return how many requests each rule acted on, by name or ``"<position>: <action>"``."""
        return {name: rule.hits for name, rule in self.rules.items()}


class Preset(Struct, frozen=True):
    """A named rule list: its subject, the rules in order, and each rule's explanation by name."""

    name: str
    about: str
    faults: tuple[Fault, ...]
    explained: dict[str, str]


PRESETS = {
    preset.name: preset for preset in msgspec.json.decode(text_beside(__name__, "presets.json"), type=list[Preset])
}


def preset(name: str) -> Preset:
    """Return the preset with this name. Raises ValueError with the nearest name."""
    check("preset", name, Literal[*PRESETS], ValueError)
    return PRESETS[name]
