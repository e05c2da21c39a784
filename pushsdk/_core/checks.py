"""Checks of arguments and fields by their annotations. Errors name the rule, the type or number, the nearest name."""

import functools
import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import FunctionType, GenericAlias, NoneType, UnionType
from typing import Annotated, Any, Literal, ParamSpec, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta, Struct

from pushsdk._core.words import check_keywords, count, missing_attribute, plain_error

__tracebackhide__ = True  # by pytest: a failure shows the line of the test
P = ParamSpec("P")
T = TypeVar("T")
NumberOfSeconds: TypeAlias = Annotated[float, Meta(ge=0, le=1e9)]
# Annotations that msgspec checks, as it checks JSON. All others are classes.
_JSON = frozenset({str, int, float, bool, dict, NoneType, Mapping, Sequence, Literal, Annotated})
_EXAMPLES = {"Fault": ".status(429)", "ServiceLimits": "(max_users=100)"}

_hints = functools.cache(functools.partial(get_type_hints, include_extras=True))


def check_calls(cls: type[T]) -> type[T]:
    """Decorate a class: public methods and setters check their arguments by their annotations.

    ``_RULES`` of the class replace the text of a parameter's rule. Raises TypeError for a wrong name, else ValueError.
    """
    rules: Mapping[str, str] = vars(cls).get("_RULES", {})
    for name, member in tuple(vars(cls).items()):
        if isinstance(member, FunctionType) and (name == "__init__" or name[0] != "_"):
            setattr(cls, name, _checked(member, rules))
        elif isinstance(member, staticmethod):
            setattr(cls, name, staticmethod(_checked(member.__func__, rules)))
        elif isinstance(member, property) and member.fset is not None:
            setattr(cls, name, member.setter(_checked(member.fset, rules)))

    setattr(cls, "__getattr__", missing_attribute)  # noqa: B010 - mypy would take any name for an attribute
    return cls


def _checked(function: Callable[P, T], rules: Mapping[str, str]) -> Callable[P, T]:
    signature = inspect.signature(function)

    @functools.cache  # on first use: an annotation may name the class that is being decorated
    def kinds() -> dict[str, Any]:
        kinds = dict(_hints(function))
        for own in signature.parameters.values():
            if own.kind is own.VAR_POSITIONAL:
                kinds[own.name] = GenericAlias(Iterable, (kinds[own.name],))
            elif own.kind is own.VAR_KEYWORD:  # a TypedDict, whose values the function checks
                kinds |= dict.fromkeys(get_args(kinds.pop(own.name))[0].__annotations__, Any)
        return kinds

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        check_keywords(function, kwargs, kinds())
        try:
            values = signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            by_name = ", ".join(own.name for own in signature.parameters.values() if own.kind is own.KEYWORD_ONLY)
            advice = f"; pass {by_name} by keyword" if by_name and "positional" in str(error) else ""
            raise TypeError(f"{function.__qualname__.removesuffix('.__init__')}(): {error}{advice}") from None
        for name, value in values.items():
            check(name, value, kinds().get(name, Any), rules.get(name))
        return function(*args, **kwargs)

    return call


def check_fields(struct: Struct, path: str = "") -> None:
    """Raise ValueError unless every field fits its annotation, which the Struct's own __init__ does not check."""
    for name, kind in _hints(type(struct)).items():
        check(f"{path}{name}", getattr(struct, name), kind)


def check(name: str, value: object, kind: Any, rule: str | None = None) -> None:
    """Raise ValueError unless the value fits the annotation. ``rule`` replaces the text of the rule."""
    parts, is_json = _parts(kind)
    problem = ""
    if get_origin(kind) is Iterable and isinstance(value, (list, tuple)):  # other iterables can be read only once
        for index, item in enumerate(value):
            check(f"{name}[{index}]", item, get_args(kind)[0], rule)
    elif is_json:
        try:
            msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            problem = plain_error(error, _values_of(kind)).removeprefix("$").replace(": expected", " must be", 1)
            problem = problem.replace("a number <= 1.0", "a number <= 1.0 (0.5 is half)")
    elif kind is not Any and not any(fits(value, part) for part in parts):
        problem = f" must be {', or '.join(_rule(part) for part in parts if part is not NoneType)}"
    if rule and problem:
        problem = f" must be {rule}"
    if problem:
        is_plain = isinstance(value, (int, float, NoneType)) or (isinstance(value, str) and not value)
        shown = repr(value) if is_plain else type(value).__name__
        if isinstance(value, (type, FunctionType)):
            shown = f"the {'class' if isinstance(value, type) else 'function'} {value.__qualname__}"
        got = "" if ", got" in problem or "must be" not in problem else f"; got {shown}"
        raise ValueError(f"{name}{problem.replace(', got', '; got')}{got}")


@functools.cache  # a fake response is checked per request
def _parts(kind: Any) -> tuple[tuple[Any, ...], bool]:
    parts = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    return parts, _JSON.issuperset(get_origin(part) or part for part in parts)


def fits(value: Any, kind: Any) -> bool:
    """Return True if the value is of this kind; a Callable takes as many arguments, and is not async."""
    if get_origin(kind) is not Callable:
        origin = get_origin(kind) or kind
        return isinstance(value, origin) and not (origin is Iterable and isinstance(value, str))
    return takes(value, *get_args(kind)[0]) and not is_async(value)


def takes(function: Callable[..., object], *arguments: object) -> bool:
    """Return True if the function can be called with these arguments."""
    try:
        inspect.signature(function).bind(*arguments)
    except (TypeError, ValueError) as error:
        return isinstance(error, ValueError)  # a built-in function without a signature
    return True


def is_async(function: object) -> bool:
    """Return True if the result of the call has to be awaited."""
    return any(map(inspect.iscoroutinefunction, (function, getattr(function, "__call__", None))))  # noqa: B004 - its kind


def _rule(kind: Any) -> str:
    if get_origin(kind) is Callable:
        return f"a function of {count(len(get_args(kind)[0]), 'argument')}, not async"
    if get_origin(kind) is Iterable:
        return re.sub(r"^a \w+, for example (.*)", r"a list, for example [\1]", _rule(get_args(kind)[0]))
    name = kind.__name__
    example = f", for example {name}{_EXAMPLES[name]}" if name in _EXAMPLES else ""
    return f"{'an' if name[0] in 'AEIOU' else 'a'} {name}{example}"


def _values_of(kind: Any) -> tuple[str, ...]:
    return tuple(value for part in (kind, *get_args(kind)) if get_origin(part) is Literal for value in get_args(part))


def explain(error: msgspec.ValidationError, *structs: type[Struct]) -> str:
    """Return the error of decoding JSON to these Structs in plain words, an unknown name with the nearest one."""
    hints = {name: kind for struct in structs for name, kind in _hints(struct).items()}
    (field,) = re.findall(r"(\w*)`?$", str(error))[:1]
    return plain_error(error, _values_of(hints.get(field)) or tuple(hints))


def with_retry_after(headers: Mapping[str, str] | None, seconds: int | None) -> dict[str, str]:
    """Return the headers with Retry-After. Raises ValueError if it is given twice."""
    merged = dict(headers or {})
    if seconds is not None:
        if "retry-after" in map(str.lower, merged):
            raise ValueError("Retry-After is given twice, by retry_after= and in headers=: leave one out")
        merged["Retry-After"] = str(seconds)
    return merged
