"""The text of failing tests: what the service accepted, what it refused, and why. Pure functions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from pushsdk.emulator import Fault
from pushsdk.emulator.store.records import RequestSummary

__all__ = ["plural", "quoted", "show_fault", "show_texts", "show_users", "summary"]

_SHOWN = 20  # requests, and users
_LONGEST = 60  # characters of a text
_TEXTS = 3  # languages
_DEFAULTS: tuple[object, ...] = (None, "", {})


def plural(count: int, word: str) -> str:
    """Return ``1 request``, ``2 requests``, ``1 push`` or ``2 pushes``."""
    ending = "" if count == 1 else "es" if word.endswith("sh") else "s"
    return f"{count:,} {word}{ending}"


def quoted(text: str) -> str:
    """Return the text in quotes, in one line, cut."""
    return json.dumps(text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…", ensure_ascii=False)


def show_fault(fault: Fault) -> str:
    """Return the call that makes this fault, as a test writes it."""
    fields = {name: getattr(fault, name) for name in fault.__struct_fields__}
    arguments = [f"{name}={value!r}" for name, value in fields.items() if value not in _DEFAULTS]
    return f"Fault.{fault.__struct_config__.tag}({', '.join(arguments)})"


def show_texts(texts: Mapping[str, str]) -> str:
    """Return texts with their languages, in one line."""
    shown = [f"{language} {quoted(text)}" for language, text in texts.items()]
    return ", ".join(shown[:_TEXTS]) + (f" and {len(shown) - _TEXTS} more" if len(shown) > _TEXTS else "")


def show_users(counts: Mapping[str, int]) -> str:
    """Return users and how often each was pushed to, one a line."""
    lines = [f"  {quoted(user)}: {plural(count, 'push')}" for user, count in list(counts.items())[:_SHOWN]]
    if len(counts) > _SHOWN:
        lines.append(f"  … and {len(counts) - _SHOWN:,} more")
    return "\n".join(lines)


def summary(requests: Sequence[RequestSummary], *, elsewhere: int = 0) -> str:
    """Return the requests of an inbox, the newest one a line; ``elsewhere`` counts those that reached no inbox."""
    accepted = sum(request.accepted for request in requests)
    head = "The service got no request" if not requests else f"The service got {plural(len(requests), 'request')}"
    lines = [f"{head} with this test's key{f', and accepted {accepted:,}:' if requests else '.'}"]
    if len(requests) > _SHOWN:
        lines.append(f"  … {len(requests) - _SHOWN:,} older ones, then")
    rows = [_summary_row(request) for request in requests[-_SHOWN:]]
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


def _summary_row(request: RequestSummary) -> tuple[str, ...]:
    kind = "campaign" if request.endpoint == "campaigns" else "push"
    if request.first_user is not None:
        others = f" and {request.users - 1:,} more" if request.users > 1 else ""
        kind = f"push to {quoted(request.first_user)}{others}"
    texts = show_texts(request.title or request.body)
    reason = f"fault {quoted(request.fault)}" if request.fault else request.error or ""
    answer = "no answer" if request.status is None else str(request.status)
    return ("accepted" if request.accepted else "refused", answer, kind, texts, f"({reason})" if reason else "")
