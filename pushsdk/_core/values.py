"""The one check on values to send: they have JSON's types, and their known fields have the model's types.

A ValidationError names a path below the root and never shows a value: values are user ids and texts.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from types import NoneType
from typing import Any, TypeVar

import msgspec

from pushsdk._core.models import UNSET, Model
from pushsdk._core.paths import Path, unicode_text, value_error
from pushsdk._core.words import kind_of, rule_and_path

M = TypeVar("M", bound=msgspec.Struct)

MAX_DEPTH = 100  # msgspec's encoder and decoder, and the parsers of most servers, recurse
_SHOWN_DEPTH = 5  # levels shown of a path that is too deep


def plain(value: object, path: Path) -> Any:
    """Return the value in exactly the types that JSON round-trips. Raises ValidationError for other types.

    Subclasses of str, int and float become plain. msgspec would encode the rejected values as something else.
    """
    for kinds, convert in _PLAIN:
        if isinstance(value, kinds):
            return convert(value, path)
    raise value_error(path, f"{kind_of(value)} is not JSON: pass a text or a number instead")


def _integer(value: int, path: Path) -> int:
    if not -(2**63) <= value < 2**64:
        raise value_error(path, "the integer does not fit 64 bits")
    return int.__int__(value)


def _number(value: float, path: Path) -> float:
    if not math.isfinite(value):
        raise value_error(path, "NaN and infinity are not JSON")
    return float.__float__(value)


def _model(value: Model, path: Path) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, wire_name in zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True):
        field = getattr(value, name)
        if field is None:
            raise value_error((*path, wire_name), "None can't be sent; leave the field out")
        if field is not UNSET:
            fields[wire_name] = plain(field, (*path, wire_name))
    return fields


def _mapping(value: Mapping[Any, object], path: Path) -> dict[str, Any]:
    _check_depth(path)
    return {_key(key, path): plain(item, (*path, key)) for key, item in value.items()}


def _list(value: Sequence[object], path: Path) -> list[Any]:
    _check_depth(path)
    return [plain(item, (*path, index)) for index, item in enumerate(value)]


def _check_depth(path: Path) -> None:
    if len(path) >= MAX_DEPTH:
        raise value_error(
            path[:_SHOWN_DEPTH], f"nested more than {MAX_DEPTH} levels deep, or the value contains itself"
        )


def _key(key: object, path: Path) -> str:
    if not isinstance(key, str):
        raise value_error(path, f"a key is {kind_of(key)}, and must be a str")
    return unicode_text(key, path)


_PLAIN: tuple[tuple[Any, Callable[[Any, Path], Any]], ...] = (
    (str, unicode_text),
    ((NoneType, bool), lambda value, _: value),
    (int, _integer),
    (float, _number),
    (Model, _model),
    ((dict, Mapping), _mapping),  # a dict is recognized at once
    ((list, tuple), _list),
)


def typed(value: dict[str, Any], model: type[M], path: Path) -> M:
    """Return the model for a plain value, without unknown fields. Raises ValidationError for other types."""
    try:
        return msgspec.convert(value, model)
    except msgspec.ValidationError as error:
        rule, where = rule_and_path(error)
        below = _path_of(where, value)
        hint = ', for example {"en": "Hello"}' if below[-1:] in (("title",), ("subtitle",), ("body",)) else ""
        raise value_error((*path, *below), f"{rule}{hint}") from None


def _path_of(where: str, value: Any) -> Path:
    """Return the path in msgspec's words as names and indexes. msgspec hides a mapping's key."""
    path: list[str | int] = []
    for name, index, hidden in re.findall(r"\.(\w+)|\[(\d+)\]|(\[\.\.\.\])", where):
        if hidden:
            step: str | int = next(key for key, item in value.items() if not isinstance(item, str))
        else:
            step = name or int(index)
        path.append(step)
        value = value[step]
    return tuple(path)
