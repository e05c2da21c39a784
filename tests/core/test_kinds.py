"""The checker: rule, value and fix of each kind, and values that stay hidden."""

import asyncio
import math
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Annotated, Any, Literal, TypedDict

import msgspec
import pytest

from pushsdk import ConfigurationError, Rate, RetryPolicy, Timeout
from pushsdk._core.kinds import (
    Count,
    CountOrZero,
    Delay,
    Duration,
    NonEmpty,
    PerSecond,
    Port,
    Probability,
    Rule,
    Share,
    check,
    check_fields,
    check_values,
    must_be,
)

THEIR_TIMEOUT = type("Timeout", (), {"__module__": "httpx"})
# What no kind of number takes.
NOT_NUMBERS = [True, "1", b"1", [1], None, 1j, math.nan, math.inf, -math.inf]

Even = Annotated[int, Rule("an even number", lambda number: number % 2 == 0)]


def one(_): ...


async def one_later(_): ...


class CalledLater:
    async def __call__(self, _): ...


@pytest.mark.parametrize(
    ("kind", "fitting", "others"),
    [
        (Duration, [0.001, 30, 1e8], [0, -1, 1e9, *NOT_NUMBERS]),
        (Delay, [0, 0.5], [-0.001, 1e9, *NOT_NUMBERS]),
        (PerSecond, [0.1, 100], [0, -1, *NOT_NUMBERS]),
        (Share, [0.01, 1], [0, 1.01, *NOT_NUMBERS]),
        (Probability, [0, 1], [-0.1, 1.1, *NOT_NUMBERS]),
        (Count, [1, 10**12], [0, 1.0, *NOT_NUMBERS]),
        (CountOrZero, [0, 7], [-1, 0.0, *NOT_NUMBERS]),
        (Port, [0, 65_535], [-1, 65_536, *NOT_NUMBERS]),
        (NonEmpty, ["x"], ["", 1]),
        (float | None, [1, 1.5, None], [True, "1"]),
        (bool, [True, False], [1, None]),
        (Literal["wait", "raise"], ["wait"], ["block", None, 1]),
        (Sequence[str], [[], ["a"], ("a",)], ["a", {"a"}, [1], None]),
        (Iterable[Rate], [[], iter([5]), {Rate()}], ["a", [Rate(), 5], Rate()]),
        (Set[int], [set(), frozenset({5})], [[5], {"5"}]),
        (Mapping[str, str], [{}, {"a": "b"}], [{1: "b"}, {"a": 1}, [("a", "b")]]),
        (Callable[[Any], object], [one, print, max], [one_later, CalledLater(), "x", lambda: None]),
        (Rate | Callable[[Any], object], [Rate(), one], [Rate, 5, one_later]),
        (Any, [None, 5, object], []),
    ],
)
def test_values_of_a_kind_pass_and_others_do_not(kind, fitting, others):
    for value in fitting:
        check("value", value, kind)
    for value in others:
        with pytest.raises(ConfigurationError, match=r"value\b.* must be .+; got "):
            check("value", value, kind)


@pytest.mark.parametrize(
    ("name", "value", "kind", "text"),
    [
        ("rate", 100, Rate, "rate must be a Rate, for example Rate(requests_per_second=100); got 100"),
        ("into", 1, Literal["a", "b", "c"], "into must be 'a', 'b' or 'c'; got 1"),
        ("hosts", ["a", 5], Sequence[str], "hosts[1] must be a str; got 5"),
        ("nested", [[1], ["2"]], Sequence[list[int]], "nested[1][0] must be a whole number; got '2'"),
        (
            "r",
            RetryPolicy.none,
            RetryPolicy | None,
            "r must be a RetryPolicy, for example RetryPolicy.safe(max_attempts=3); got the method RetryPolicy.none",
        ),
        (
            "f",
            one_later,
            Callable[[Any], Any],
            "f must be a function of 1 argument, not async; got the function one_later",
        ),
        ("data", 5, bytes | str, "data must be bytes, or a str; got 5"),
        ("stop", threading.Event(), asyncio.Event, "stop must be an asyncio.Event; got threading.Event"),
        (
            "t",
            THEIR_TIMEOUT(),
            Timeout,
            "t must be a Timeout, for example Timeout(total=30, connect=5); got httpx.Timeout",
        ),
    ],
)
def test_an_error_has_the_rule_the_value_and_a_fix(name, value, kind, text):
    with pytest.raises(ConfigurationError, match=f"^{re.escape(text)}$"):
        check(name, value, kind)


def test_a_value_is_shown_only_if_it_is_short_plain_and_not_private():
    for name, value, shown in [
        ("api_key", "secret", "str"),
        ("claims()", "secret", "str"),
        ("user_ids[3]", ["secret"], "list"),
        ("name", "a secret that is as long as a key", "str"),
        ("name", THEIR_TIMEOUT(), "Timeout"),
        ("name", None, "None"),
    ]:
        assert str(must_be(name, "a key", value)) == f"{name} must be a key; got {shown}"


class Settings(msgspec.Struct, frozen=True):
    total: Duration | None = None
    even: Even = 2

    def __post_init__(self):
        check_fields(self, ValueError)


def test_a_struct_checks_each_field_and_so_does_json():
    assert Settings(total=5, even=4).total == 5
    with pytest.raises(ValueError, match=r"^Settings\.even must be an even number; got 3$") as caught:
        Settings(even=3)
    assert type(caught.value) is ValueError
    with pytest.raises(msgspec.ValidationError, match=r"^Settings\.total must be .*; got -1\.0 - at `\$\[0\]`$"):
        msgspec.json.decode(b'[{"total": -1}]', type=list[Settings])


class Options(TypedDict, total=False):
    rate: Rate
    even: Even


def test_options_are_checked_by_their_typed_dict_and_none_is_their_default():
    check_values({"rate": None, "even": 2}, Options)
    with pytest.raises(ConfigurationError, match=r"^even must be an even number; got '2'$"):
        check_values({"even": "2"}, Options)
