"""A stored request as a text: a row of columns; a curl command, which reads address and key from the environment."""

import json
from collections.abc import Mapping

from pushsdk._texts import text_beside
from pushsdk.emulator.store.records import RequestSummary

_MAX_CHARACTERS = 60  # per text of a row
_MAX_TEXTS = 3  # languages of a row
_MAX_LENGTH = 1 << 20  # characters: 16 MB took seconds
_CURL = text_beside(__name__, "snippet.sh.template").rstrip()


def curl(endpoint: str, body: str) -> str:
    """Return the request as a POSIX shell command that sends equal JSON; empty for a long body.

    The command is pasted into shells, so no body may end a quote or contain a control character.
    """
    if len(body) > _MAX_LENGTH:
        return ""
    # In valid JSON control characters are between tokens, other unprintable characters within strings.
    unsafe = {char for char in {*body} - {"\n"} if not char.isprintable()}
    text = body.translate({ord(char): " " if char < " " else json.dumps(char)[1:-1] for char in unsafe})
    # A JSON line is never a bare EOF, because strings contain no line breaks.
    return f"{_CURL.format(endpoint=endpoint)} <<'EOF'\n{text}\nEOF\n"


def quoted(text: str) -> str:
    """Return the text in quotes, on one line, cut to 60 characters."""
    return json.dumps(text if len(text) <= _MAX_CHARACTERS else f"{text[: _MAX_CHARACTERS - 1]}…", ensure_ascii=False)


def show_texts(texts: Mapping[str, str]) -> str:
    """Return texts with their languages, on one line."""
    shown = [f"{language} {quoted(text)}" for language, text in texts.items()]
    return ", ".join(shown[:_MAX_TEXTS]) + (f" and {len(shown) - _MAX_TEXTS} more" if len(shown) > _MAX_TEXTS else "")


def _subject(request: RequestSummary) -> str:
    if request.first_user is None:
        return "campaign" if request.endpoint == "campaigns" else "push"
    others = f" and {request.users - 1:,} more" if request.users > 1 else ""
    return f"push to {quoted(request.first_user)}{others}"


def row_of(request: RequestSummary) -> tuple[str, ...]:
    """Return a request's columns for people."""
    texts = show_texts(request.title or request.body)
    reason = f"fault {quoted(request.fault)}" if request.fault else request.error or ""
    status = "no response" if request.status is None else str(request.status)
    verdict = "accepted" if request.accepted else "not accepted"
    return (verdict, status, _subject(request), texts, f"({reason})" if reason else "")
