"""The options of the emulator, and the emulator that they describe; whatever can't be is said with its option."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec
from cyclopts import Parameter
from cyclopts.validators import Number

from pushsdk.cli._exit import CommandError, Exit, usage
from pushsdk.cli._options import Flag
from pushsdk.emulator import Emulator, Fault, ServiceLimits, load_faults
from pushsdk.emulator.faults import Rules
from pushsdk.emulator.presets import PRESETS
from pushsdk.emulator.segment import segment_available

__all__ = ["LOOPBACK", "Behaviour", "Port", "made", "token_in"]

LOOPBACK = ("127.0.0.1", "localhost", "::1")
Port = Annotated[int, Parameter(validator=Number(gte=0, lte=65_535))]
_LARGEST = 64 * 1024


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Behaviour:
    """What the service does, and what it keeps."""

    faults: str | None = None
    """A JSON file of rules, as [{"fault": "status", "code": 429, "first": 3}]; or flaky, outage or another preset."""
    seed: int = 0
    """Where the draws of faults with a probability start."""
    limits: Path | None = None
    """A JSON file of what an inbox takes, as {"max_users": 1000, "rate": 50, "quota": 100000}."""
    strict: Flag = False
    """Refuse what the interface does not show."""
    store: Path | None = None
    """The file that keeps what came, also for the next time. It holds user ids and messages."""
    keep: Annotated[int, Parameter(validator=Number(gte=0))] = 100_000
    """Requests to keep in each inbox."""
    max_age: Annotated[float | None, Parameter(validator=Number(gt=0))] = None
    """Seconds to keep them for."""
    audience: Path | None = None
    """A folder of tables (CSV, Parquet, JSON lines): campaigns run their segments on them."""


def made(behaviour: Behaviour | None, **options: Any) -> Emulator:
    """The emulator that the options describe. Raises CommandError."""
    wish = behaviour or Behaviour()
    if wish.audience is not None and not segment_available():
        raise CommandError("--audience needs duckdb: pip install 'pushsdk[cli]'", Exit.CANNOT_RUN)
    limits = ServiceLimits() if wish.limits is None else _limits(wish.limits)
    faults = _faults(wish.faults)
    with _said_with("--audience"):  # all else was looked at
        return Emulator(
            faults=faults,
            seed=wish.seed,
            limits=msgspec.structs.replace(limits, strict=True) if wish.strict else limits,
            store=wish.store,
            keep=wish.keep,
            max_age=wish.max_age,
            audience=wish.audience,
            **options,
        )


def token_in(file: Path) -> str:
    """The token in a file, without the line end after it."""
    with _said_with(f"--token-file {file}"), file.open("rb") as opened:
        token = opened.read(_LARGEST).decode("ascii", "replace").strip()
    if not token or not all("!" <= character <= "~" for character in token):
        raise usage(f"--token-file {file}: expected one word of ASCII letters, digits and signs")
    return token


def _faults(named: str | None) -> list[Fault]:
    if named is None:
        return []
    if named in PRESETS:
        return list(PRESETS[named].faults)
    with _said_with(f"--faults {named}", f"; the presets are {', '.join(PRESETS)}"):
        faults = load_faults(Path(named).read_bytes())
        Rules(faults)
        return faults


def _limits(file: Path) -> ServiceLimits:
    with _said_with(f"--limits {file}"):
        return msgspec.json.decode(file.read_bytes(), type=ServiceLimits)


@contextmanager
def _said_with(option: str, advice: str = "") -> Iterator[None]:
    """Name the option in the error; ``advice`` follows if the file can't be read."""
    try:
        yield
    except ValueError as error:
        raise usage(f"{option}: {error}") from None
    except OSError as error:
        raise usage(f"{option}: {error.strerror}{advice}") from None
