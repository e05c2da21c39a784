"""The local audience tables: which files of a folder are tables, and the SQL that reads each.

Only names and the first line of a CSV file are looked at here. Nothing of DuckDB is imported.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping
from pathlib import Path

from msgspec import Struct

from pushsdk._broadcast._source import plain
from pushsdk._broadcast._text_files import delimiter_of

__all__ = ["SUFFIXES", "SegmentError", "Table", "find_tables", "literal", "no_such_table", "pattern", "scan_sql"]

# By the end of a file's name: what is in it. A file without one of these is no table.
SUFFIXES = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
}
# Of a file, as much as is looked at for its header.
_HEAD = 64 * 1024
_SHOWN = 20


class SegmentError(ValueError):
    """A segment can't be found out; the text says in one line what to do, and holds no value of a row."""


class Table(Struct, frozen=True):
    """A file that a query may name."""

    name: str
    """Its stem. In a query, as ``FROM "spring users"`` where it is no plain word."""
    path: str
    """Absolute, without symbolic links."""
    form: str


def find_tables(directory: Path) -> dict[str, Table]:
    """The tables of a folder, by their names in lower case: DuckDB's SQL makes no difference there.

    Files in folders below it are none, nor are hidden files, nor symbolic links to somewhere else. Raises
    `SegmentError` where the folder can't be read, or two files would be one table.
    """
    found: dict[str, Table] = {}
    try:
        root = directory.resolve(strict=True)
        paths = sorted(each for each in root.iterdir() if each.suffix.lower() in SUFFIXES)
    except OSError as error:
        raise SegmentError(f"{plain(str(directory))} can't be read as a folder of tables: {error.strerror}") from None
    for path in paths:
        real = path.resolve()
        if path.name.startswith(".") or not real.is_relative_to(root) or not real.is_file():
            continue
        if not _is_unicode(f"{path}{real}"):
            raise SegmentError(f"the name of {plain(ascii(path.name))} is not UTF-8: rename the file")
        table = Table(path.stem, str(real), SUFFIXES[path.suffix.lower()])
        if other := found.get(table.name.lower()):
            names = f"{plain(Path(other.path).name)} and {plain(path.name)}"
            raise SegmentError(f"{names} would both be the table {plain(table.name)}: rename one of them")
        found[table.name.lower()] = table
    return found


def no_such_table(name: str, tables: Mapping[str, Table]) -> SegmentError:
    """Which there are, and which may be meant."""
    names = sorted(table.name for table in tables.values())
    shown = ", ".join(map(plain, names[:_SHOWN])) + (f" and {len(names) - _SHOWN} more" if names[_SHOWN:] else "")
    near = difflib.get_close_matches(name.lower()[:100], tables, n=1)
    meant = f"; did you mean {plain(tables[near[0]].name)}?" if near else ""
    return SegmentError(f"there is no table {plain(name, 60)!r}, only {shown or 'an empty folder'}{meant}")


def scan_sql(table: Table, columns: Mapping[str, str] | None = None) -> str:
    """What reads the table, to stand after FROM. ``columns`` gives the types of a JSON file; else DuckDB guesses.

    Raises `SegmentError` where a CSV file can't be opened.
    """
    path = literal(pattern(table.path))
    if table.form == "parquet":
        return f"read_parquet({path}, hive_partitioning = false)"
    if table.form == "json":
        # Formats that nothing has: a text that looks like a date stays a text.
        guess = "sample_size = -1, dateformat = '~', timestampformat = '~'"
        if columns is not None:
            guess = "columns = {" + ", ".join(f"{literal(name)}: {literal(columns[name])}" for name in columns) + "}"
        return f"read_json({path}, format = 'newline_delimited', hive_partitioning = false, {guess})"
    cut = "\t" if table.form == "tsv" else delimiter_of(_header(table))
    return (
        f"read_csv({path}, all_varchar = true, header = true, delim = {literal(cut)}, quote = '\"', escape = '\"', "
        "comment = '', skip = 0, hive_partitioning = false)"
    )


def pattern(path: str) -> str:
    """The pattern that only this file matches: DuckDB takes every name for one."""
    return re.sub(r"([*?\[])", r"[\1]", path)


def literal(text: str | Collection[str]) -> str:
    """A text, or a list of texts, as SQL writes it."""
    if isinstance(text, str):
        return "'" + text.replace("'", "''") + "'"
    return "[" + ", ".join(map(literal, text)) + "]"


def _header(table: Table) -> str:
    try:
        with open(table.path, "rb") as file:
            head = file.read(_HEAD)
    except OSError as error:
        raise SegmentError(f"the table {plain(table.name)} can't be read: {error.strerror}") from None
    return head.decode(errors="replace").lstrip("\ufeff\r\n").partition("\n")[0]


def _is_unicode(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
