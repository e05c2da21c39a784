"""Named lists of fault rules: the bad days a service has, ready to be used. Data, and one look-up."""

from __future__ import annotations

from msgspec import Struct

from pushsdk.emulator.faults import Fault

__all__ = ["PRESETS", "Preset", "preset"]


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
