"""Command input: messages, campaigns and custom fields as JSON, and the user source.

JSON is checked only for the types in the interface document, so fields for a newer service pass. A name that is
nearly a documented field is refused, as is a message without a platform or a text: a service that ignores them
reports success.
"""

import codecs
import itertools
import json
import re
import shlex
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec
from cyclopts import Parameter

from pushsdk._audience.audience import Audience
from pushsdk._audience.text_files import FORMATS
from pushsdk._core.errors import MessageWarning, ValidationError
from pushsdk._core.lint import Problem, lint
from pushsdk._core.models import CampaignRequest, MobilePush, Model, PushRequest
from pushsdk._core.operations import Operation
from pushsdk._core.values import typed
from pushsdk._core.words import rule_and_path
from pushsdk.cli.exit import text_of, usage_error
from pushsdk.cli.terminal import escaped, print_json, say, warn

_MAX_BYTES = 16 * 1024 * 1024
_REFUSED = frozenset({"near-name", "near-value", "no-platform", "no-text", "no-segment", "malformed-placeholder"})
KIND_NAMES = {MobilePush: "message", CampaignRequest: "campaign", PushRequest: "push request"}
DryRun = Annotated[bool, Parameter(help="Print the request as a curl command, or with --json as JSON; send nothing.")]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class MessageOptions:
    """The message: JSON, or a title and a body."""

    message: str | None = None
    """Read the message from this JSON file; - is standard input, and a text that starts with { is the JSON itself."""
    title: str | None = None
    """Set the title for a message to iOS and Android, without JSON."""
    body: str | None = None
    """Set the body of that message."""
    lang: str | None = None
    """Set the language for --title and --body. [default: en]"""
    custom_fields: str | None = None
    """Set the custom fields: a JSON object, or @FILE."""
    force: bool = False
    """Send despite a damaged user id, a misspelled name or value, or without a platform, text or segment."""

    def read(self) -> tuple[dict[str, Any], dict[str, Any] | None]:
        """Return the message, with JSON field names, and the custom fields. Raises a usage error."""
        texts = {name: utf8(text) for name, text in (("title", self.title), ("body", self.body)) if text is not None}
        if (self.message is None) is not bool(texts) or None not in (self.message, self.lang):
            raise usage_error("pass the message either with --message FILE, or with --title, --body and --lang")
        fields = None if self.custom_fields is None else read_object("--custom-fields", self.custom_fields)
        message = _message_of(texts, self.lang or "en") if self.message is None else _read_message(self.message)
        print_advice(message, force=self.force)
        return {"type": "MOBILE_PUSH", **message}, fields


def _read_message(text: str) -> dict[str, Any]:
    name, message, kind = read_resource(text, "--message")
    if kind is not MobilePush:
        raise usage_error(f'{name}: must be a message, not a {KIND_NAMES[kind]}; pass only the value of "message"')
    return message


def _message_of(texts: Mapping[str, str], language: str) -> dict[str, Any]:
    if any("\\n" in text for text in texts.values()):
        warn(r"advice: a text has \n as two characters; in bash, $'first\nsecond' has a line end")
    return {
        "iosEnabled": True,
        "androidEnabled": True,
        **{name: {language: text} for name, text in texts.items()},
    }


def read_resource(text: str, option: str = "FILE") -> tuple[str, dict[str, Any], type[Model]]:
    """Return a message, campaign or push request after its file name, and before its model.

    JSON itself is named like its ``option``. Raises a usage error that names the file and the JSON path.
    """
    is_json = text.lstrip().startswith("{")
    resource = read_object(option, text if is_json or text.startswith("@") else f"@{text}")
    name = option if is_json else _file_name(text)
    kind: type[Model] = MobilePush
    if resource.keys() & {"message", "segment", "schedule", "userIds"}:
        kind = PushRequest if "userIds" in resource else CampaignRequest
    try:
        typed(resource, kind, ("message",) if kind is MobilePush else ())
    except ValidationError as error:
        raise usage_error(f"{name}: {text_of(error)}") from None
    return name, resource, kind


def read_object(option: str, text: str) -> dict[str, Any]:
    """Return the JSON object in an option's value: the text itself, the file in ``@FILE``, or stdin for ``@-``."""
    name = (text.startswith("@") and _file_name(text)) or option
    if text[:1] not in ("@", "{"):
        raise usage_error(f"""{option}: must be a JSON object, for example '{{"name": "Ann"}}', or @FILE""")
    content = _read_bytes(text[1:], name, option) if text.startswith("@") else text.encode("utf-8", "surrogateescape")
    try:
        value = decoded(content, Any)
    except ValueError as error:
        raise usage_error(f"{name}: {error}") from None
    if not isinstance(value, dict):
        raise usage_error(f"{name}: must be a JSON object, {{...}}; got {type(value).__name__}")
    return value


def decoded(content: bytes, kind: Any) -> Any:
    """Return a JSON text's value. Raises ValueError with the rule that the text breaks, and where."""
    content = content.removeprefix(codecs.BOM_UTF8)
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.ValidationError as error:
        rule, where = rule_and_path(error)
        raise ValueError(f"${where}: {rule}; for the names see: pushsdk docs emulator#make-it-fail") from None
    except (RecursionError, ValueError):
        raise ValueError(_not_json(content)) from None


def _not_json(content: bytes) -> str:
    """Return the rule that this text breaks, with the line and column of the first error. The rule quotes no text."""
    if not content.strip():
        return "must be JSON: it is empty"
    try:
        json.loads(content.decode())
    except UnicodeDecodeError:
        return "must be JSON: save it as UTF-8"
    except json.JSONDecodeError as error:
        return f"must be JSON: {error.msg}, line {error.lineno}, column {error.colno}"
    except RecursionError:
        pass
    return "must be JSON: it is nested too deeply, or has NaN, Infinity or half of a surrogate pair"


def _file_name(text: str) -> str:
    return "standard input" if text in ("-", "@-") else text.removeprefix("@")


def _read_bytes(file: str, name: str, option: str) -> bytes:
    try:
        if file == "-":
            content = sys.stdin.buffer.read(_MAX_BYTES + 1)
        else:
            with Path(file).open("rb") as opened:
                content = opened.read(_MAX_BYTES + 1)
    except OSError as error:
        advice = "; for a text use --title and --body" if option == "--message" else ""
        raise usage_error(f"{name}: {error.strerror}{advice}") from None
    if len(content) > _MAX_BYTES:
        raise usage_error(f"{name}: must not be larger than {_MAX_BYTES // 2**20} MiB")
    return content


def problem_text(problem: Problem) -> str:
    """Return one line: the place, the problem, and its code."""
    return f"{problem.path}: {problem.message} ({problem.code})"


def print_advice(resource: Mapping[str, Any], *, force: bool) -> None:
    """Print the problems that lint finds to stderr.

    Unless ``force`` is set, raises a usage error for a refused one, and makes later warnings about user ids and
    placeholders errors.
    """
    problems = lint(resource)
    for problem in problems:
        warn(f"advice: {problem_text(problem)}")
    warnings.filterwarnings("ignore", r"\$", MessageWarning)  # those with a path are printed above
    if force:
        return
    refused = "a user id|.* for the placeholder, did you mean|the message has placeholders"
    warnings.filterwarnings("error", refused, MessageWarning)
    if any(problem.code in _REFUSED for problem in problems):
        raise usage_error("nothing was sent: fix the message, or pass --force")


def read_ids(words: Sequence[str], most: int) -> list[str]:
    """Return ids, and the ids in the files named by words such as ``@ids.txt``: up to one more than ``most``.

    ``@-`` is standard input, and ``@@ann`` the id ``@ann``.
    """
    ids = list[str]()
    for word in words:
        is_file = word.startswith("@") and not word.startswith("@@")
        ids += _read_ids_file(word, most) if is_file else [_checked_id(word)]
    if not ids:
        raise usage_error(f"no user ids in {', '.join(map(_file_name, words))}: write one per line")
    return ids


def _read_ids_file(word: str, most: int) -> list[str]:
    if word == "@":
        raise usage_error("@ needs the name of a file: @ids.txt")
    try:
        users = itertools.chain.from_iterable(open_users(word, "user_id").ids())
        return list(itertools.islice(users, most + 1))
    except ValidationError as error:
        raise usage_error(text_of(error, primary_key="broadcast --primary-key ")) from None


def _checked_id(word: str) -> str:
    """Return the id that a word names. Raises a usage error if the word may be meant for something else."""
    if has_users(word) and Path(word).is_file():
        raise usage_error(
            f"{word} is a file: write @{word} for the ids in it, or --message {word} for a message; an id of this "
            "name is only taken from a file of ids"
        )
    if not word:
        raise usage_error("a user id is empty: is a variable of the shell not set?")
    if re.search(r"[,;\s]", word):
        raise usage_error(f"{word!r} is one id: write ids apart, without quotation marks; a file may hold such ids")
    return utf8(word).removeprefix("@")


def utf8(word: str) -> str:
    """Decode a word from the command line as UTF-8 if the locale could not."""
    return word.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")


def has_users(name: str) -> bool:
    """Return True if files with such a name hold users."""
    return Path(name).suffix.lower() in (*FORMATS, ".parquet")


def open_users(source: str, primary_key: str) -> Audience:
    """Return the users in a file, or in standard input. Raises a ValidationError if the source can't be read."""
    name = source.removeprefix("@")
    return Audience.lines(sys.stdin.buffer) if name == "-" else Audience.read(name, primary_key=primary_key)


def print_request(
    base_url: str, operation: Operation, body: bytes, *, json: bool, more: Mapping[str, Any] = {}
) -> None:
    """Print a request as JSON without the Api-Key, with ``more``; or as a curl command with the variable's key."""
    url = f"{base_url}/{operation.path}"
    if json:
        request = {"method": operation.method, "url": url, "headers": {"Content-Type": "application/json"}}
        print_json({**request, "body": msgspec.Raw(body), **more})
        return
    say(f"curl -X {operation.method} {shlex.quote(url)} \\")
    say("  -H \"Api-Key: $PUSHSDK_API_KEY\" -H 'Content-Type: application/json' \\")
    say(f"  --data-raw {shlex.quote(escaped(body.decode()))}")
