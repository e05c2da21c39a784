"""``pushsdk broadcast``: one message to any number of users, with a run file that survives whatever happens."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pushsdk import AsyncPushClient, BroadcastReport, PushError, read_report
from pushsdk._broadcast.audience import Audience
from pushsdk._core.words import count
from pushsdk.cli._confirm import confirm
from pushsdk.cli._files import advise, audience_of, read_fields, read_message
from pushsdk.cli._options import File, Flag, Pace, Service, given, settings_of
from pushsdk.cli._runs import Course, left, send_run
from pushsdk.cli._summary import again

__all__ = ["broadcast"]


def broadcast(
    source: File | None = None,
    /,
    *,
    message: File,
    run: Path,
    query: str | None = None,
    primary_key: str = "user_id",
    custom_fields: str | None = None,
    personalize: Literal["custom-fields", "text", "both"] | None = None,
    no_dedupe: Flag = False,
    unknown: Literal["hold", "resend"] = "hold",
    yes: Flag = False,
    course: Course | None = None,
    service: Service | None = None,
    pace: Pace | None = None,
) -> int:
    """Push one message to any number of users, and keep in a file what happened to each.

    Parameters
    ----------
    source
        The users: .txt with one id a line, .csv, .jsonl or .parquet; - is ids by standard input.
    message
        A JSON file that holds the message; - is standard input.
    run
        The file of the run. It holds user ids; only you can read it.
    query
        Instead of a source, a SELECT in DuckDB's SQL, as "SELECT id FROM 'users.parquet' WHERE active".
    primary_key
        The column, or the key, that holds the id.
    custom_fields
        A JSON object that goes with the message, or @FILE.
    personalize
        A request of its own for each user: the other columns of the row become its custom fields, or fill the
        placeholders in the text, or both. A value that is missing takes the placeholder's fallback.
    no_dedupe
        Do not look for ids that come again: each is pushed as often as it comes.
    unknown
        What a run that is taken up does with users of whom nobody knows: resend may push them twice.
    yes
        Do not ask before sending to another machine.
    """
    content = read_message(message)
    fields = None if custom_fields is None else read_fields("--custom-fields", custom_fields)
    audience = audience_of(source, query, primary_key, message=message)
    settings = settings_of(service, pace)
    advise(content)
    try:
        users = left(read_report(run), unknown)
    except PushError:  # no run yet
        users = None
    if users != 0:
        confirm(f"Push to {_whom(audience, run, users)} at {settings.base_url}?", settings, yes=yes)

    async def start(client: AsyncPushClient, options: dict[str, Any]) -> BroadcastReport:
        options |= {"run": run, "on_unknown": unknown}
        if personalize is None:
            return await client.broadcast(audience, content, custom_fields=fields, dedupe=not no_dedupe, **options)
        into: Any = personalize.replace("-", "_")
        return await client.send_each(
            audience.personalize(content, into=into, custom_fields=fields, distinct=not no_dedupe), **options
        )

    resume = again(run, given(service, pace))
    return send_run(settings, start, course=course or Course(), run=run, resume=resume, users=users)


def _whom(audience: Audience, run: Path, left: int | None) -> str:
    """How many users, where it can be said before they are read."""
    if left is not None:
        return f"the {count(left)} left of {run}"
    rows = audience.count()
    return "the users of the source" if rows is None else f"at most {count(rows)}"
