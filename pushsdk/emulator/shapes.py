"""The two request bodies in the interface document: their decoding, and the ``ServiceLimits(strict=True)`` checks.

Strict refuses likely mistakes that a service may ignore: unknown fields, values other than the one that the interface
document shows for an enumeration, and missing fields without which a push or a campaign makes no sense. The document
names no required field: ``PushBody`` and ``_NEEDED`` are simulated.
"""

import hashlib
import json
from collections.abc import Callable
from functools import partial
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta, Struct

from pushsdk._core.lint import SHOWN, LintNode, Problem, nodes, problems
from pushsdk._core.models import CampaignRequest, MobilePush, PushRequest
from pushsdk._core.paths import show_path
from pushsdk._texts import text_beside
from pushsdk.emulator.guard import Refused

LARGE = 64 * 1024
"""Bytes beside the users up to which a body is analyzed: 16 times the limit of a device, 0.3 s of work."""
_MAX_USER_IDS = 4 * 1024 * 1024  # bytes

# A push's userIds and message are required by `PushBody`, texts and platforms by `lint`.
_NEEDED: dict[str, dict[str, str]] = json.loads(text_beside(__name__, "needed.json"))
_NEEDED_TOO = {"no-text", "no-platform"}  # lint rules

T = TypeVar("T")


class PushBody(PushRequest, frozen=True, kw_only=True):
    """Users and message are required: a push is impossible without them."""

    user_ids: Annotated[tuple[Annotated[str, Meta(min_length=1)], ...], Meta(min_length=1)]
    message: MobilePush

    def digest(self) -> int:
        """Return 64 bits that are equal for equal message and custom fields, whatever the order of their names.

        Two accepted pushes with equal digests to one user are a duplicate, see `Store.received`.
        """
        content = msgspec.json.encode(msgspec.structs.replace(self, user_ids=()), order="deterministic")
        return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "big", signed=True)


class _UserList(Struct, frozen=True, rename="camel"):
    user_ids: msgspec.Raw = msgspec.Raw()


_users = msgspec.json.Decoder(_UserList)


def _read(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    try:
        return decoder.decode(body)
    except RecursionError:
        error = "JSON is nested too deeply"
    except ValueError as invalid:
        error = str(invalid)
    raise Refused(400, error if " - at " in error else f"{error} - at `$`")


# Each decodes a body: a push send request, a campaign create request. They raise `Refused`, never with a value.
read_push: Callable[[bytes], PushBody] = partial(_read, msgspec.json.Decoder(PushBody))
read_campaign: Callable[[bytes], CampaignRequest] = partial(_read, msgspec.json.Decoder(CampaignRequest))
READERS = {"push": read_push, "campaigns": read_campaign}


def is_large(body: bytes) -> bool:
    """Return True if a body has over `LARGE` bytes beside its users, or too many users."""
    if len(body) <= LARGE:
        return False
    try:
        users = len(_users.decode(body).user_ids)
    except (ValueError, RecursionError):
        return True
    return users > _MAX_USER_IDS or len(body) - users > LARGE


def check_strictly(endpoint: str, body: bytes) -> None:
    """Raise `Refused` for a readable body that strict refuses; the text contains the path, never a value."""
    model = PushRequest if endpoint == "push" else CampaignRequest
    if is_large(body):
        raise Refused(400, f"over {LARGE} bytes beside the users, which is more than devices accept - at `$`")
    value = _read(msgspec.json.Decoder(), body)
    tree = nodes(value, model)
    for node in tree:  # before values: a misspelled field is unknown, not missing
        _check_names(node)
    for node in tree:
        _check_values(show_path(node.path), node)
    for problem in problems(value, model, ()):
        if problem.code in _NEEDED_TOO:
            raise _refused(problem)


def _refused(problem: Problem) -> Refused:
    return Refused(400, f"{problem.message} - at `{problem.path}`")


def _check_names(node: LintNode) -> None:
    for name in node.fields:
        if name not in node.model.__struct_encode_fields__:
            # Only this name, as each costs a search for a near one. The rules for names come first.
            raise _refused(problems({name: None}, node.model, node.path)[0])


def _check_values(path: str, node: LintNode) -> None:
    for (kind, name), shown in SHOWN.items():
        if node.model is kind and node.fields.get(name, shown) != shown:
            raise Refused(400, f"unknown value, the interface shows only {shown} - at `{path}.{name}`")
    for name, advice in _NEEDED.get(node.model.__name__, {}).items():
        if not node.fields.get(name):
            raise Refused(400, f"missing {name}: {advice} - at `{path}`")
