"""Values that are not JSON, each of which msgspec would change silently, send, or fail on."""

import dataclasses
import datetime
import decimal
import enum
import math
import uuid

import msgspec

from pushsdk import UNSET


class Plain(enum.Enum):
    A = "x"


class SubFloat(float):
    pass


@dataclasses.dataclass(frozen=True)
class Data:
    label: str = "x"


class Alien(msgspec.Struct, frozen=True):
    label: str = "x"


def cycle():
    items = []
    items.append([items, items])
    return items


def nested(depth):
    value = 1
    for _ in range(depth):
        value = [value]
    return value


NOT_JSON = [
    math.nan, math.inf, SubFloat("nan"), b"x", bytearray(b"x"), memoryview(b"x"), {"x"}, frozenset("x"),
    decimal.Decimal(1), datetime.datetime(2020, 1, 1), datetime.timedelta(1), uuid.UUID(int=1), Data(), Alien(),
    Plain.A, msgspec.Raw(b"1"), object(), range(3), UNSET, 2**64, -(2**63) - 1, 10**5000, "\ud800", "a\udfffb",
    {1: "x"}, {None: "x"}, {True: "x"}, {Plain.A: "x"}, {b"x": "x"}, {("a",): "x"}, {"\ud800": "x"}, cycle(),
    nested(150), nested(100_000), {}.keys(), (x for x in ()), 1j, ...,
]  # fmt: skip
