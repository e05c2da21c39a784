"""Signs that a text is not the user id that was meant: a spreadsheet, a table, an export or a shell changed it.

One table for every way to pass users. Its texts name damage and fix, never the id.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from pushsdk._core.errors import Advice, warn_caller

# Missing values as pandas, R, JavaScript, Excel and SQL clients write them.
_MISSING = r"""
    None none NONE (none) <none> null Null NULL (null) (NULL) [null] [NULL] <null> <NULL> \N nil undefined (blank)
    nan NaN NAN -nan NaT NA <NA> N/A n/a inf -inf Infinity -Infinity
    """.split()  # noqa: SIM905 - words
_OWNERS = "user customer client member account contact subscriber recipient device".split()  # noqa: SIM905 - words
_COLUMNS = [
    f"{case(owner)}{mark}{name}"
    for owner in _OWNERS
    for case in (str.lower, str.title, str.upper)
    for mark in ("", "_", "-", " ")
    for name in ("id", "Id", "ID")
]
_COLUMNS += "id Id ID uid UID uuid UUID email Email EMAIL".split()  # noqa: SIM905 - words
# The words that are no ids, each with damage and fix.
WORDS = {
    **dict.fromkeys(_MISSING, "is {!r}, the text of a missing value: leave such users out"),
    **dict.fromkeys(_COLUMNS, "is the name of a column: leave the header out, or save the table as .csv"),
}
# Faster than the keys for a look at many ids.
_WORD_SET = frozenset(WORDS)
_VARIABLE = r"\A\$\w+\Z|\{\s*[A-Za-z_][\w.]*\s*\}"
# Persian and Indic scripts and emoji join their letters with these.
_JOINERS = r"(?<=[^\x00-\x7f])[\u200c\u200d](?=[^\x00-\x7f])"


def _is_unreadable(text: str) -> bool:
    return "\ufffd" in text or not (text.isprintable() or re.sub(_JOINERS, "", text).isprintable())


# The first sign that an id has tells damage and fix. Compiled when they are looked for, as most ids are plain.
_SIGNS = (
    (r"\A\s|\s\Z", "begins or ends with a space or a line end: strip it"),
    (
        r"\A(#+|#¡?[\w/]+[!?]|#N/?[A-Z]{1,2}( N/A)?|#GETTING_DATA|-?1[.,]#\w+)\Z",
        "is an error in a spreadsheet: correct the cell, or leave such users out",
    ),
    (
        r"(?a)\A[+-]?(\d+([.,]\d+)?[Ee]\+\d+|\d+[.,]\d+E-?\d+)\Z",
        "is a number that a spreadsheet or a float shortened, so digits are lost: export the column as text",
    ),
    (
        r"\A[+-]?\d+[.,]0+\Z",
        "is a number with .0 at its end, as pandas and spreadsheets write an int: read the column as text",
    ),
    (r"\A[=']", "begins with the sign of a formula or a text in a spreadsheet: export the bare id"),
    (r'\A"', "has quotation marks around it: leave them out"),
    (_VARIABLE, "has a variable's name instead of its value: set the variable, or write the f of f'...'"),
    (r"\A.*\.(csv|tsv|txt|jsonl|parquet)\Z", "is the name of a file: broadcast reads the ids in a file"),
    (r"[,;\t\n]", "looks like several: pass each as a separate id, and a table as .csv"),
)
_UNREADABLE = "has an invisible character, such as a byte order mark, or U+FFFD: export the column as UTF-8"
# Signs in many ids. Looking for one character is far faster than for two. A file's name is looked for in one id alone:
# in a chunk of email addresses that would take twice as long as all other signs.
_MARKS = ",;{$#'\x7f"
# Signs in encoded ids, by a character that they have.
_ENCODED_SIGNS = {"=": (b'"=',), " ": (b'" ', b' "'), "+": (b"E+", b"e+")}
#: For ``bytes.translate``: makes each byte a NUL that most encoded ids lack, and that each sign needs.
SIGNS = re.sub(rb'[^"A-Za-z0-9_@:/|-]', b"\0", bytes(range(256)))
# An ASCII id without a sign, unless it is one of the words.
_is_plain = re.compile(
    r"(?!=|[+-]?\d+(?:\.0+\Z|(?:\.\d+)?[Ee]\+|\.\d+E))[A-Za-z0-9_.@:/|+=-]+"
    r"(?<!\.csv)(?<!\.tsv)(?<!\.txt)(?<!\.jsonl)(?<!\.parquet)"
).fullmatch


def damage_in(user_id: str) -> str | None:
    """Return the damage that the id shows, with its fix; None for a plain id."""
    if user_id in WORDS:
        return WORDS[user_id].format(user_id)
    # Without a look at the table for nearly every id.
    if _is_plain(user_id):
        return None
    return next(
        (text for sign, text in _SIGNS if re.search(sign, user_id)), _UNREADABLE if _is_unreadable(user_id) else None
    )


def damage_of(ids: Collection[str], encoded: bytes) -> list[str]:
    """Return the damage that each damaged id shows. ``encoded`` is their JSON."""
    if len(ids) > 1 and not may_have_damage(ids, encoded):
        return []
    return list(filter(None, map(damage_in, ids)))


def may_have_damage(ids: Collection[str], encoded: bytes) -> bool:
    """Return False if every id is plain. A look at each takes ten times as long."""
    text = "".join(ids)
    return (
        any(mark in text for mark in _MARKS)
        or _has_sign(text, encoded)
        or _has_number(text, encoded)
        or _has_word(text, ids)
        or (not text.isascii() and _is_unreadable(encoded.decode()))
    )


def _has_sign(text: str, encoded: bytes) -> bool:
    # JSON writes quotation marks and control characters with a backslash, 0x5C: a byte is found faster than bytes.
    return 0x5C in encoded or any(
        mark in text and any(sign in encoded for sign in signs) for mark, signs in _ENCODED_SIGNS.items()
    )


def _has_word(text: str, ids: Iterable[str]) -> bool:
    # Each word has a letter among these.
    return any(letter in text for letter in "inIN") and not _WORD_SET.isdisjoint(ids)


def _has_number(text: str, encoded: bytes) -> bool:
    # The cheapest first.
    may_end = "." in text and ("E" in text or b'0","' in encoded or text[-1] == "0")
    return may_end and re.search(rb'\.(?=\d)(0+|\d+E-?\d+)"', encoded) is not None


def lacks_value(text: str) -> bool:
    """Return True for a text such as ``user-{i}`` or ``None``, whose value was not filled in."""
    return text in _MISSING or re.search(_VARIABLE, text) is not None


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
