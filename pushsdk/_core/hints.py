"""Hints for mistakes that would be silent, or that stop the first push.

Only constructors, the linter and the command line import this module. All other code states the rule and the value.
"""

from collections.abc import Collection, Iterable, Mapping

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


def check_options(call: str, names: Iterable[str], known: Collection[str], elsewhere: Mapping[str, str] = {}) -> None:
    """Raise TypeError for the first unknown name in the alphabet, with its fix in ``elsewhere`` or the nearest name.

    ``call`` is the name of the function for the text.
    """
    name = min({*names}.difference(known), default=None)
    if name is None:
        return
    near = near_name(name, known, 0.65)
    hint = elsewhere.get(name) or (near and f"did you mean {near!r}?")
    raise TypeError(f"{call}() got an unexpected keyword argument {name!r}{f': {hint}' if hint else ''}")
