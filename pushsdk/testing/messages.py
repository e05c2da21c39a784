"""Texts of test failures: the requests that the service accepted and refused, and why. Pure functions."""

import json
from collections.abc import Mapping, Sequence

import msgspec

from pushsdk._core.words import count as counted
from pushsdk.emulator import Fault
from pushsdk.emulator.store.records import RequestSummary

_MAX_ROWS = 20  # requests, or users
_MAX_CHARACTERS = 60  # per text
_MAX_TEXTS = 3  # languages


def quoted(text: str) -> str:
    """Return the text in quotes, on one line, cut to 60 characters."""
    return json.dumps(text if len(text) <= _MAX_CHARACTERS else f"{text[: _MAX_CHARACTERS - 1]}…", ensure_ascii=False)


def show_fault(fault: Fault) -> str:
    """Return the call that makes this fault, as in a test."""
    fields = msgspec.to_builtins(fault)  # without defaults
    return f"Fault.{fields.pop('fault')}({', '.join(f'{name}={value!r}' for name, value in fields.items())})"


def show_texts(texts: Mapping[str, str]) -> str:
    """Return texts with their languages, on one line."""
    shown = [f"{language} {quoted(text)}" for language, text in texts.items()]
    return ", ".join(shown[:_MAX_TEXTS]) + (f" and {len(shown) - _MAX_TEXTS} more" if len(shown) > _MAX_TEXTS else "")


def show_users(pushes: Mapping[str, int]) -> str:
    """Return users and their numbers of pushes, one user per line."""
    lines = [f"  {quoted(user)}: {counted(number, 'push')}" for user, number in list(pushes.items())[:_MAX_ROWS]]
    if len(pushes) > _MAX_ROWS:
        lines.append(f"  … and {len(pushes) - _MAX_ROWS:,} more")
    return "\n".join(lines)


def summary(requests: Sequence[RequestSummary], *, elsewhere: int = 0) -> str:
    """Return the newest requests of an inbox, one per line. ``elsewhere`` counts the requests that reached no inbox."""
    accepted = sum(request.accepted for request in requests)
    received = counted(len(requests), "request") if requests else "no request"
    head = f"The service received {received} with this test's key"
    lines = [f"{head}, and accepted {accepted:,}:" if requests else f"{head}."]
    if len(requests) > _MAX_ROWS:
        lines.append(f"  … {len(requests) - _MAX_ROWS:,} older requests, then")
    rows = [_summary_row(request) for request in requests[-_MAX_ROWS:]]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines += [
        "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    if elsewhere:
        lines.append(
            f"{counted(elsewhere, 'request')} had another key or another path:"
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
    status = "no response" if request.status is None else str(request.status)
    return ("accepted" if request.accepted else "refused", status, kind, texts, f"({reason})" if reason else "")
