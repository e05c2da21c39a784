"""Checks of functions and of kinds."""

import inspect
from collections.abc import Callable, Iterable
from typing import Any, get_args, get_origin


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
