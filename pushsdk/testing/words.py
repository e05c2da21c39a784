"""What a failing test says of the service, pure: what it took, what it refused, and why."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from pushsdk.emulator import Fault
from pushsdk.emulator.records import Summary

__all__ = ["call_of", "plural", "quoted", "summary", "texts_told", "users_told"]

_SHOWN = 20  # requests, and users
_LONGEST = 60  # characters of a text
_TEXTS = 3  # languages
_LEFT_OUT: tuple[object, ...] = (None, "", {})  # arguments that say nothing


def plural(count: int, word: str) -> str:
    """``1 request``, ``2 requests``, ``1 push``, ``2 pushes``."""
    ending = "" if count == 1 else "es" if word.endswith("sh") else "s"
    return f"{count:,} {word}{ending}"


def quoted(text: str) -> str:
    """A text in quotes, in one line, cut."""
    return json.dumps(text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…", ensure_ascii=False)


def call_of(fault: Fault) -> str:
    """The fault as it is written in a test."""
    given = {name: getattr(fault, name) for name in fault.__struct_fields__}
    said = [f"{name}={value!r}" for name, value in given.items() if value not in _LEFT_OUT]
    return f"Fault.{fault.__struct_config__.tag}({', '.join(said)})"


def texts_told(texts: Mapping[str, str]) -> str:
    """Texts and their languages."""
    told = [f"{language} {quoted(text)}" for language, text in texts.items()]
    return ", ".join(told[:_TEXTS]) + (f" and {len(told) - _TEXTS} more" if len(told) > _TEXTS else "")


def users_told(counts: Mapping[str, int]) -> str:
    """Users and how often each was pushed to, one a line."""
    lines = [f"  {quoted(user)}: {plural(count, 'push')}" for user, count in list(counts.items())[:_SHOWN]]
    if len(counts) > _SHOWN:
        lines.append(f"  … and {len(counts) - _SHOWN:,} more")
    return "\n".join(lines)


def summary(requests: Sequence[Summary], *, elsewhere: int = 0) -> str:
    """All that the service got in an inbox, the newest of it one a line; ``elsewhere`` counts what reached no inbox."""
    accepted = sum(request.accepted for request in requests)
    head = "The service got no request" if not requests else f"The service got {plural(len(requests), 'request')}"
    lines = [f"{head} with this test's key{f', and accepted {accepted:,}:' if requests else '.'}"]
    if len(requests) > _SHOWN:
        lines.append(f"  … {len(requests) - _SHOWN:,} older ones, then")
    rows = [_row(request) for request in requests[-_SHOWN:]]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines += [
        "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    if elsewhere:
        lines.append(
            f"{plural(elsewhere, 'request')} came with another key or to another path:"
            " does the code use push.base_url and push.api_key?"
        )
    return "\n".join(lines)


def _row(request: Summary) -> tuple[str, ...]:
    whom = "campaign" if request.endpoint == "campaigns" else "push"
    if request.first_user is not None:
        others = f" and {request.users - 1:,} more" if request.users > 1 else ""
        whom = f"push to {quoted(request.first_user)}{others}"
    shown = texts_told(request.title or request.body)
    why = f"fault {quoted(request.fault)}" if request.fault else request.error or ""
    answer = "no answer" if request.status is None else str(request.status)
    return ("accepted" if request.accepted else "refused", answer, whom, shown, f"({why})" if why else "")
