"""A stored request as a curl command, which reads PUSHSDK_BASE_URL and PUSHSDK_API_KEY from the environment."""

import json

from pushsdk._texts import text_beside

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
