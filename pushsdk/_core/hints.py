"""Hints for mistakes that would be silent, or that stop the first push.

Only constructors, the linter and the command line import this module. All other code states the rule and the value.
"""

from collections.abc import Collection
from typing import Any

from pushsdk._core.errors import warn_caller
from pushsdk._core.words import fold, near_word

ALIASES = {
    "maxretries": "retry",
    "token": "api_key",
    "url": "base_url",
    "verify": "ssl",
    "badge": "badgeCount",
    "data": "keyVals",
    "image": "bigImageUrl",
    "text": "body",
}
"""Names in other libraries, folded, and the names here."""


def near_name(name: str, known: Collection[str], cutoff: float = 0.8) -> str | None:
    """Return the known name that ``name`` may be meant for, or None."""
    alias = ALIASES.get(fold(name))
    return alias if alias in known else near_word(name, known, cutoff)


def check_options(call: str, options: Any, known: Collection[str]) -> None:
    """Raise TypeError for the unknown name that is first in the alphabet. ``call`` names the function in the text.

    Then the options are cleared: the value may be the Api-Key, and an error's traceback may show local variables.
    """
    name = min(options.keys() - known, default=None)
    if name is not None:
        options.clear()
        near = near_name(name, known, 0.65)
        hint = f": did you mean {near!r}?" if near else ""
        raise TypeError(f"{call}() got an unexpected keyword argument {name!r}{hint}")


def warn_of_milliseconds(name: str, value: object) -> None:
    """Warn about a number of seconds that is probably in milliseconds. A larger number than these is refused."""
    if isinstance(value, (int, float)) and 1000 <= value < 1e9 and value % 1000 == 0:
        warn_caller(f"{name}={value:g} is in seconds, and looks like milliseconds; pass a timedelta if it is meant")
