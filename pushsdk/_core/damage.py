"""Signs that a text is not the user id that was meant: a spreadsheet, a table, an export or a shell changed it.

One table for every way to pass users. Its texts name damage and fix, never the id.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial

from pushsdk._core.errors import Advice, warn_caller

# Missing values as pandas, R, JavaScript, Excel and SQL clients write them.
_MISSING = frozenset(
    r"""
    None none NONE (none) <none> null Null NULL (null) (NULL) [null] [NULL] <null> <NULL> \N nil undefined (blank)
    nan NaN NAN -nan NaT NA <NA> N/A n/a inf -inf Infinity -Infinity
    """.split()  # noqa: SIM905 - words
)
_OWNERS = "user customer client member account contact subscriber recipient device".split()  # noqa: SIM905 - words
_COLUMNS = frozenset(
    (
        *"id Id ID uid UID uuid UUID email Email EMAIL".split(),  # noqa: SIM905 - words
        *(
            f"{case(owner)}{mark}{name}"
            for owner in _OWNERS
            for case in (str.lower, str.title, str.upper)
            for mark in ("", "_", "-", " ")
            for name in ("id", "Id", "ID")
        ),
    )
)
_WORDS = _MISSING | _COLUMNS
_variable_in = partial(re.search, r"\A\$\w+\Z|\{\s*[A-Za-z_][\w.]*\s*\}")
# Persian and Indic scripts and emoji join their letters with these.
_JOINERS = r"(?<=[^\x00-\x7f])[\u200c\u200d](?=[^\x00-\x7f])"


def _is_unreadable(text: str) -> bool:
    return "\ufffd" in text or not (text.isprintable() or re.sub(_JOINERS, "", text).isprintable())


# The first sign that an id has tells damage and fix. Compiled when they are looked for, as most ids are plain.
_SIGNS: tuple[tuple[Callable[[str], object], str], ...] = (
    (partial(re.search, r"\A\s|\s\Z"), "begins or ends with a space or a line end: strip it"),
    (_MISSING.__contains__, "is {!r}, the text of a missing value: leave such users out"),
    (
        partial(re.fullmatch, r"#+|#¡?[\w/]+[!?]|#N/?[A-Z]{1,2}( N/A)?|#GETTING_DATA|-?1[.,]#\w+"),
        "is an error in a spreadsheet: correct the cell, or leave such users out",
    ),
    (
        partial(re.fullmatch, r"(?a)[+-]?(\d+([.,]\d+)?[Ee]\+\d+|\d+[.,]\d+E-?\d+)"),
        "is a number that a spreadsheet or a float shortened, so digits are lost: export the column as text",
    ),
    (
        partial(re.fullmatch, r"[+-]?\d+[.,]0+"),
        "is a number with .0 at its end, as pandas and spreadsheets write an int: read the column as text",
    ),
    (partial(re.match, "[=']"), "begins with the sign of a formula or a text in a spreadsheet: export the bare id"),
    (partial(re.match, '"'), "has quotation marks around it: leave them out"),
    (_variable_in, "has a variable's name instead of its value: set the variable, or write the f of f'...'"),
    (
        partial(re.fullmatch, r".*\.(csv|tsv|txt|jsonl|parquet)"),
        "is the name of a file: broadcast reads the ids in a file",
    ),
    (_COLUMNS.__contains__, "is the name of a column: leave the header out, or save the table as .csv"),
    (partial(re.search, r"[,;\t\n]"), "looks like several: pass each as a separate id, and a table as .csv"),
    (_is_unreadable, "has an invisible character, such as a byte order mark, or U+FFFD: export the column as UTF-8"),
)
# Signs in encoded ids, each after the characters that it has: looking for one character is far faster. A file's name
# is looked for in one id alone: in a chunk of email addresses that would take twice as long as all other signs.
_ENCODED_SIGNS = (
    # JSON writes quotation marks and control characters with the first.
    *((mark, mark) for mark in (b"\\", b";", b"{", b"$", b"#", b"'", b"\x7f")),
    (b"=", b'"='),
    (b" ", b'" '),
    (b" ", b' "'),
    (b"+E", b"E+"),
    (b"+e", b"e+"),
)
_number_in = partial(re.search, rb'\.(0+|\d+E-?\d+)"')
# Each word has one.
_LETTERS = b"inIN"
# An ASCII id without a sign, unless it is one of the words. Most ids lack all characters that a sign needs.
_is_plain = re.compile(
    r"[A-Za-z0-9_@:/|-]++|(?!=|[+-]?\d+(?:\.0+\Z|(?:\.\d+)?[Ee]\+|\.\d+E))[A-Za-z0-9_.@:/|+=-]+"
    r"(?<!\.csv)(?<!\.tsv)(?<!\.txt)(?<!\.jsonl)(?<!\.parquet)"
).fullmatch


def damage_in(user_id: str) -> str | None:
    """Return the damage that the id shows, with its fix; None for a plain id."""
    # Without a look at the table for nearly every id.
    if _is_plain(user_id) and user_id not in _WORDS:
        return None
    return next((text.format(user_id) for is_sign, text in _SIGNS if is_sign(user_id)), None)


def damage_of(ids: Collection[str], encoded: bytes) -> list[str]:
    """Return the damage that each damaged id shows. ``encoded`` is their JSON."""
    if len(ids) > 1 and not may_have_damage(ids, encoded):
        return []
    return list(filter(None, map(damage_in, ids)))


def may_have_damage(ids: Collection[str], encoded: bytes) -> bool:
    """Return False if every id is plain. A look at each takes ten times as long."""
    text = "".join(ids)
    return (
        "," in text
        or _has_sign(encoded)
        or _has_number(ids, encoded)
        or (any(letter in encoded for letter in _LETTERS) and not _WORDS.isdisjoint(ids))
        or (not text.isascii() and _is_unreadable(encoded.decode()))
    )


def _has_number(ids: Collection[str], encoded: bytes) -> bool:
    # The cheapest first. A number that ends with .0 is before a comma, and begins before ":": with a digit or a sign.
    may_end = b"." in encoded and (b"E" in encoded or b'0","' in encoded + b',"')
    return may_end and min(ids) < ":" and _number_in(encoded) is not None


def _has_sign(encoded: bytes) -> bool:
    return any(sign in encoded for marks, sign in _ENCODED_SIGNS if all(mark in encoded for mark in marks))


def lacks_value(text: str) -> bool:
    """Return True for a text such as ``user-{i}`` or ``None``, whose value was not filled in."""
    return text in _MISSING or _variable_in(text) is not None


def is_filled(run: str) -> bool:
    """Return False for a run's name such as ``daily-{date}``, ``daily-$(date)``, ``%Y`` or ``<class 'date'>``."""
    return not re.search(
        r"\{[^{}]*\}|\$[A-Za-z_{(]|%[aAbBcdDeFGhHIjklmMpPrRsSTuUVwWxXyYzZ]|<(class|function|built-in) ", run
    )


def damage_text(damages: Mapping[str, int], place: str = "") -> Advice:
    """Return the text for damaged ids, from the number of ids with each damage.

    ``place`` is where the first id with the first damage is, if known.
    """
    kinds = [text if number == 1 else f"{text} ({number:,} such ids)" for text, number in damages.items()]
    return Advice(f"a user id{place and f' ({place})'} {'; another '.join(kinds)}", "{sent}")


def warn_of_damage(damages: Iterable[str] | Mapping[str, int]) -> None:
    """Warn about ids that are sent although they are probably damaged, if there are any."""
    if damages:
        warn_caller(damage_text(Counter(damages)))
