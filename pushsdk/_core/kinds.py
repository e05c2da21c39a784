"""Kinds, and the one checker.

A kind is a type, or a type with a rule in words. ``check("first", first, Count | None)`` raises an error that states
rule, value and fix unless the value fits the kind; ``check_fields(self)`` in a ``__post_init__`` checks each field by
its annotation, ``check_values(options, ClientOptions)`` each keyword argument, and ``check_arguments(query, locals())``
at the begin of ``query`` each argument. The last argument is the error class: ``check("faults", faults,
Sequence[Fault], ValueError)``.
"""

import functools
import inspect
import re
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from datetime import datetime, timedelta
from types import FunctionType, MethodType, NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from msgspec import Struct

from pushsdk._core.errors import ConfigurationError
from pushsdk._core.words import count

__tracebackhide__ = True  # by pytest: a failure shows the test's line
# A larger number is a mistake: in seconds, 30 years.
MAX_NUMBER = 1e9
# Arguments whose values are not shown: secrets, ids and texts.
_SECRETS = frozenset({"api_key", "base_url", "claims", "headers", "proxy", "server", "session", "token"})
_HIDDEN = _SECRETS | {"idempotency_key", "only_users", "request", "user_id", "user_ids"}
_PLAIN = (bool, int, float, str)


class Rule(Struct, frozen=True):
    """A rule in words, to follow "must be", and a test if the type does not suffice."""

    text: str
    test: Callable[[Any], bool] | None = None

    def __repr__(self) -> str:
        return self.text  # help() shows it in signatures


Duration = Annotated[float, Rule("a number of seconds greater than 0", lambda number: 0 < number < MAX_NUMBER)]
Delay = Annotated[float, Rule("a number of seconds, 0 or more", lambda number: 0 <= number < MAX_NUMBER)]
PerSecond = Annotated[float, Rule("a number greater than 0", lambda number: 0 < number < MAX_NUMBER)]
Share = Annotated[
    float,
    Rule("a share greater than 0 and at most 1, for example 0.5 for half of the users", lambda share: 0 < share <= 1),
]
Probability = Annotated[float, Rule("a number from 0 to 1, for example 0.5", lambda share: 0 <= share <= 1)]
Count = Annotated[int, Rule("a whole number, 1 or more", lambda number: number >= 1)]
CountOrZero = Annotated[int, Rule("a whole number, 0 or more", lambda number: number >= 0)]
Status = Annotated[int, Rule("an HTTP status from 100 to 599, for example 429", range(100, 600).__contains__)]
RefusedStatus = Annotated[int, Rule("an HTTP status from 400 to 599, for example 413", range(400, 600).__contains__)]
Port = Annotated[int, Rule("a port from 0 to 65535, 0 for any free one", range(65_536).__contains__)]
NonEmpty = Annotated[str, Rule("a str that is not empty", bool)]
Moment = Annotated[
    datetime,
    Rule("a datetime with a zone, for example datetime.now(UTC) + timedelta(hours=2)", lambda moment: moment.tzinfo),
]
UserIds = Annotated[Set[str], Rule("a set of user ids, for example {'user-1', 'user-2'}")]

_EXAMPLES = {
    "Batching": "(linger=0.005)",
    "Fault": ".status(429)",
    "Limits": "(in_flight=8)",
    "Rate": "(requests_per_second=100)",
    "RetryPolicy": ".safe(max_attempts=3)",
    "ServiceLimits": "(max_users=100)",
    "StopPolicy": "(rejected=0.1)",
    "Timeout": "(total=30, connect=5)",
}

kinds_of = functools.cache(functools.partial(get_type_hints, include_extras=True))


def check(name: str, value: object, kind: Any, error: type[Exception] = ConfigurationError) -> None:
    """Raise ConfigurationError, or another error class, unless the value fits this kind."""
    if not _test(kind)(value):
        raise must_be(*_misfit(name, value, kind), error)


def check_fields(struct: Struct, error: type[Exception] = ConfigurationError) -> None:
    """Check each field by its annotation, as the Struct's ``__init__`` does not."""
    for name, kind, test in _tests_of(type(struct)):
        if not test(value := getattr(struct, name)):
            check(f"{type(struct).__name__}.{name}", value, kind, error)


def check_arguments(function: Callable[..., object], arguments: Mapping[str, object], error: type[Exception]) -> None:
    """Check a function's arguments, which its ``locals()`` are at its begin, by annotations that are kinds."""
    for name, kind in kinds_of(function).items():
        if name in arguments and not isinstance(kind, TypeVar):
            check(name, arguments[name], kind, error)


def check_seconds(name: str, value: object, kind: Any = Duration) -> float:
    """Return a number of seconds, or a timedelta, as a float. Raises ConfigurationError unless it fits this kind."""
    seconds: Any = value.total_seconds() if isinstance(value, timedelta) else value
    check(name, seconds, kind)
    return float(seconds)


def check_values(options: Mapping[str, object], kinds: type) -> None:
    """Check keyword arguments by the annotations in their TypedDict. None stands for each default.

    Secrets have checks that never see their values in an error.
    """
    for name, value in options.items():
        if value is not None and name not in _SECRETS:
            check(name, value, kinds_of(kinds)[name])


def must_be(name: str, rule: str, value: object, error: type[Exception] = ConfigurationError) -> Exception:
    """Return the error for a value that breaks a rule: ``{name} must be {rule}; got ...``.

    Shows a short plain value, and for all others only the type: a long text may be a key, an id or a URL.
    """
    is_hidden = not _HIDDEN.isdisjoint(re.findall(r"\w+", name))
    is_plain = value is None or (type(value) in _PLAIN and (value == "" or not is_hidden))
    if isinstance(value, (type, FunctionType, MethodType)):
        noun = "class" if isinstance(value, type) else type(value).__name__
        shown = f"the {noun} {value.__qualname__}"
    elif is_plain and "..." not in reprlib.repr(value):
        shown = reprlib.repr(value)
    else:
        shown = _type_of(value, rule)
    return error(f"{name} must be {rule}; got {shown}")


def _type_of(value: object, rule: str) -> str:
    """Return the type's name, with its library if the rule has that name."""
    name, library = type(value).__name__, type(value).__module__.partition(".")[0]
    is_like_ours = library != "builtins" and re.search(rf"\b{name}\b", rule)
    return f"{library}.{name}" if is_like_ours else name


def is_async(function: object) -> bool:
    """Return True if the call's result has to be awaited."""
    return any(map(inspect.iscoroutinefunction, (function, getattr(function, "__call__", None))))  # noqa: B004 - its kind


def takes(function: Callable[..., object], *arguments: object) -> bool:
    """Return True if the function can be called with these arguments."""
    try:
        inspect.signature(function).bind(*arguments)
    except (TypeError, ValueError) as error:
        return isinstance(error, ValueError)  # a built-in function without a signature
    return True


# Tests are made once: each call with a timeout checks fields. And by class: a kind's hash takes a microsecond.
_Test = Callable[[Any], bool]


@functools.cache
def _tests_of(struct: type[Struct]) -> tuple[tuple[str, Any, _Test], ...]:
    return tuple((name, kind, _test(kind)) for name, kind in kinds_of(struct).items())


@functools.cache
def _test(kind: Any) -> _Test:
    return _TESTS.get(get_origin(kind) or kind, _is_instance)(kind)


def _passes(kind: Any) -> _Test:
    tests = [rule.test for rule in kind.__metadata__ if isinstance(rule, Rule) and rule.test]
    is_type = _test(get_args(kind)[0])
    return lambda value: is_type(value) and all(test(value) for test in tests)


def _is_any_of(kind: Any) -> _Test:
    tests = [*map(_test, get_args(kind))]
    return lambda value: any(test(value) for test in tests)


def _is_instance(kind: Any) -> _Test:
    cls = get_origin(kind) or kind
    # A str iterates over its characters.
    not_this = str if cls in (Iterable, Sequence) else ()
    return lambda value: (
        isinstance(value, cls)
        and not isinstance(value, not_this)
        and all(_test(part)(item) for _, item, part in _items("", value, kind))
    )


_TESTS: dict[Any, Callable[[Any], _Test]] = {
    Annotated: _passes,
    Union: _is_any_of,
    UnionType: _is_any_of,
    Literal: lambda kind: lambda value: isinstance(value, str) and value in get_args(kind),
    Callable: lambda kind: lambda value: callable(value) and takes(value, *get_args(kind)[0]) and not is_async(value),
    Any: lambda _: lambda value: True,
    # A bool is an int to Python, and a mistake to us.
    int: lambda _: lambda value: isinstance(value, int) and not isinstance(value, bool),
    float: lambda _: lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
}


def _items(name: str, value: object, kind: Any) -> Iterator[tuple[str, object, Any]]:
    """Yield a container's items with their kinds. An iterable that can be read only once is left alone."""
    cls, parts = get_origin(kind), get_args(kind)
    if not isinstance(cls, type) or not isinstance(value, cls):
        return
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from ((f"a key of {name}", key, parts[0]), (f"a value of {name}", item, parts[1]))
    elif isinstance(value, Set):
        yield from ((f"a value of {name}", item, parts[0]) for item in value)
    elif isinstance(value, (list, tuple)):
        yield from ((f"{name}[{index}]", item, parts[0]) for index, item in enumerate(value))


def _misfit(name: str, value: object, kind: Any) -> tuple[str, str, object]:
    """Return name, rule and value for the value itself or its first item that does not fit."""
    parts = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    for part in parts:
        for where, item, item_kind in _items(name, value, part):
            if not _test(item_kind)(item):
                return _misfit(where, item, item_kind)
    return name, ", or ".join(_rule_of(part) for part in parts if part is not NoneType), value


def _rule_of(kind: Any) -> str:
    origin = get_origin(kind) or kind
    if origin in _RULES:
        return _RULES[origin](kind)
    name, library = origin.__name__, origin.__module__.partition(".")[0]
    example = f", for example {name}{_EXAMPLES[name]}" if name in _EXAMPLES else ""
    full = name if library in ("builtins", "pushsdk") else f"{library}.{name}"
    return f"{'an' if full[0] in 'AEIOUaeiou' else 'a'} {full}{example}"


_RULES: dict[Any, Callable[[Any], str]] = {
    # The outermost rule decides.
    Annotated: lambda kind: next(rule.text for rule in reversed(kind.__metadata__) if isinstance(rule, Rule)),
    Literal: lambda kind: " or ".join(", ".join(map(repr, get_args(kind))).rsplit(", ", 1)),
    Callable: lambda kind: f"a function of {count(len(get_args(kind)[0]), 'argument')}, not async",
    str: lambda _: "a str",
    bytes: lambda _: "bytes",
    bool: lambda _: "True or False",
    int: lambda _: "a whole number",
    float: lambda _: "a number",
    Set: lambda _: "a set",
    **dict.fromkeys((dict, Mapping), lambda _: "a mapping"),
    **dict.fromkeys((list, tuple, Iterable, Sequence), lambda _: "a list"),
}
