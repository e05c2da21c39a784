"""``pushsdk plan``: what a broadcast would come to; nothing is sent and nothing is kept."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from msgspec import Struct

from pushsdk import Batching
from pushsdk._broadcast.audience import Audience
from pushsdk._core import wire
from pushsdk._core.policy import Rate
from pushsdk.cli._exit import Exit
from pushsdk.cli._files import advise, audience_of, read_fields, read_message
from pushsdk.cli._options import File, Flag
from pushsdk.cli._progress import duration
from pushsdk.cli._summary import Figure, print_figures
from pushsdk.cli._terminal import print_json
from pushsdk.cli.settings import resolve_rate

__all__ = ["plan"]


class _Plan(Struct, kw_only=True):
    users: int = 0
    repeated: int = 0
    requests: int = 0
    bytes: int = 0
    largest: int = 0
    seconds: float | None = None


def plan(
    source: File | None = None,
    /,
    *,
    message: File,
    query: str | None = None,
    primary_key: str = "user_id",
    custom_fields: str | None = None,
    no_dedupe: Flag = False,
    rate: Annotated[float | None, Parameter(name=["--rate", "--users-per-second"])] = None,
    requests_per_second: float | None = None,
    config: Path | None = None,
    json: Flag = False,
) -> int:
    """Say what a broadcast would come to: users, requests, bytes, time. Nothing is sent.

    Parameters
    ----------
    source
        The users: .txt with one id a line, .csv, .jsonl or .parquet; - is ids by standard input.
    message
        A JSON file that holds the message; - is standard input.
    query
        Instead of a source, a SELECT in DuckDB's SQL.
    primary_key
        The column, or the key, that holds the id.
    custom_fields
        A JSON object that goes with the message, or @FILE.
    no_dedupe
        Do not look for ids that come again.
    rate
        Users per second, to tell the time.
    requests_per_second
        Requests per second, to tell the time.
    config
        The settings file, instead of pushsdk/config.toml in your configuration folder.
    json
        Print one JSON object.
    """
    content = read_message(message)
    fields = None if custom_fields is None else read_fields("--custom-fields", custom_fields)
    audience = audience_of(source, query, primary_key, message=message)
    options = {"rate": rate, "requests_per_second": requests_per_second, "config": config}
    speed = resolve_rate({name: value for name, value in options.items() if value is not None})
    advise(content)
    body = (wire.encode_message(content), wire.encode_custom_fields(fields))
    planned = _planned(audience, body, distinct=not no_dedupe)
    times = _times(planned, speed)
    planned.seconds = max(times.values(), default=None)
    if json:
        print_json(planned)
    else:
        print_figures(_figures(planned, " and ".join(times)))
    return Exit.DONE


def _planned(audience: Audience, body: tuple[bytes, bytes | None], *, distinct: bool) -> _Plan:
    message, fields = body
    around = len(wire.push_body(b"[]", message, fields))
    bounds = Batching()
    found = _Plan()
    for chunks in audience.chunks(
        fixed=len(message) + len(fields or b""),
        max_users=bounds.max_users,
        max_bytes=bounds.max_bytes,
        distinct=distinct,
    ):
        for chunk in chunks:
            size = around + len(chunk.ids)
            found.users += chunk.users
            found.requests += 1
            found.bytes += size
            found.largest = max(found.largest, size)
    found.repeated = audience.summary.repeated
    return found


def _times(planned: _Plan, rate: Rate) -> dict[str, float]:
    """The seconds at each of the two rates that is set, by the rate in words."""
    rates = ((planned.users, rate.users_per_second, "user"), (planned.requests, rate.requests_per_second, "request"))
    return {
        f"{number:,g} {noun}{'s' * (number != 1)} per second": total / number
        for total, number, noun in rates
        if number is not None
    }


def _figures(planned: _Plan, at: str) -> Iterator[Figure]:
    repeated = f"{planned.repeated:,} repeated left out" if planned.repeated else ""
    yield "users", f"{planned.users:,}", repeated, "bold"
    yield "requests", f"{planned.requests:,}", "", ""
    yield "bytes", f"{planned.bytes:,}", f"{planned.largest:,} in the largest request", ""
    if planned.seconds is None:
        yield "time", "?", "as fast as the service takes them; say --rate", ""
    else:
        yield "time", duration(planned.seconds), f"at {at}", ""
