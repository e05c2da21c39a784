"""Words that errors and commands share."""

import functools
import re
import traceback
from collections.abc import Iterable
from itertools import groupby
from pathlib import PurePath

# msgspec's words, and ours. For example "Expected `object`, got `null`".
_WORDS = (
    (" | null", ""),
    ("Object missing required field", "missing field"),
    ("Object contains unknown field", "unknown field"),
    ("Expected `bool`", "expected True or False"),
    ("Expected `int", "expected an int"),
    ("Expected `float", "expected a number"),
    ("Expected", "expected a"),
    ("`object`", "mapping"),
    ("`array`", "list"),
    ("`null`", "None"),
    ("`", ""),
)


def count(number: int, noun: str = "user") -> str:
    """Return the number with its noun: ``1 user``, ``2,000 users`` or ``2 pushes``."""
    return f"{number:,} {noun}{'' if number == 1 else 'es' if noun.endswith('sh') else 's'}"


def near_word(word: str, words: Iterable[str], cutoff: float = 0.8) -> str | None:
    """Return the word that ``word`` may be a typo of, ignoring case and separators; None if there is none."""
    return _near_word(word, tuple(words), cutoff) if len(word) <= 40 else None  # difflib is quadratic


@functools.lru_cache(maxsize=1024)  # 40 us for a field; every mapping in a broadcast may have the same unknown field
def _near_word(word: str, words: tuple[str, ...], cutoff: float) -> str | None:
    import difflib  # slow to import

    folded = {fold(known): known for known in words}
    swapped = [known for known in folded if sorted(known) == sorted(fold(word))]
    close = swapped or difflib.get_close_matches(fold(word), folded, n=1, cutoff=cutoff)
    return folded[close[0]] if close else None


def fold(word: str) -> str:
    """Return the word in lower case, without separators."""
    return re.sub(r"[\s_-]", "", word).lower()


def kind_of(value: object) -> str:
    """Return a value's type for an error."""
    if value is None:
        return "None"
    if isinstance(value, type):
        return f"the class {value.__name__}: call it"
    return type(value).__name__


def rule_and_path(error: Exception) -> tuple[str, str]:
    """Return the rule from msgspec's error in plain words, and the value's path below the root: ``.title``."""
    rule, _, path = str(error).partition(" - at `$")
    for theirs, ours in _WORDS:
        rule = rule.replace(theirs, ours)
    return rule, path.rstrip("`")


_PACKAGE = str(PurePath(__file__).parents[1])


def trace_of(error: BaseException) -> str:
    """Return an exception's class and its traceback lines between ours. Its text may quote an id."""
    frames = list(traceback.extract_tb(error.__traceback__))
    groups = groupby(frames, lambda frame: frame.filename.startswith(_PACKAGE))
    frames = next((list(group) for is_own, group in groups if not is_own), frames[1:])
    places = " > ".join(f"{PurePath(frame.filename).name}:{frame.lineno}" for frame in frames)
    return f"{type(error).__name__} at {places}" if places else type(error).__name__
