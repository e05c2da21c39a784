"""Columns as they leave DuckDB: which types are user ids, and what all others become in JSON.

An id comes as the text of what is stored. A type that has no one text (a float, a date, a boolean) is refused whole,
by the column.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from pushsdk._broadcast._duck import Connection
from pushsdk._broadcast._source import fitting, missing_column, plain
from pushsdk._broadcast.distinct import Row
from pushsdk._core.errors import ValidationError

__all__ = ["Fields", "no_id", "quoted", "sql_of_id", "sql_of_kind", "types_of"]

# By the type of a column, the first that matches: the text of an id.
_INTEGER = r"U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?"
_ID_SQL: Mapping[str, str] = {
    r"VARCHAR": "{0}",
    rf'{_INTEGER}|BIGNUM|VARINT|UUID|ENUM\(.*\)|DECIMAL\(\d+,0\)|"NULL"': "CAST({0} AS VARCHAR)",
    # A JSON value may be of any type: texts and integers are ids.
    r"JSON": "CASE WHEN json_type({0}) = 'VARCHAR' OR regexp_full_match(CAST({0} AS VARCHAR), '-?[0-9]+') "
    "THEN {0}->>'$' END",
}
# The same for a value that is sent along. Dates and times in ISO 8601, decimals with all their digits; NaN is what
# some tools write for NULL.
_NESTED = r".*\[\d*\]|STRUCT\(.*|MAP\(.*|UNION\(.*|JSON|VARIANT"
_VALUE_SQL: Mapping[str, str] = {
    _NESTED: "CAST(to_json({0}) AS VARCHAR)",
    rf"VARCHAR|BOOLEAN|{_INTEGER}": "{0}",
    r"FLOAT|DOUBLE": "CASE WHEN isnan({0}) THEN NULL ELSE {0} END",
    r"TIMESTAMP WITH TIME ZONE": "replace(CAST(make_timestamp(epoch_us({0})) AS VARCHAR), ' ', 'T') || 'Z'",
    r"TIMESTAMP(_S|_MS|_NS)?": "replace(CAST({0} AS VARCHAR), ' ', 'T')",
    r"DECIMAL\(.*|DATE|TIME.*|INTERVAL|UUID|ENUM\(.*|BIT|BIGNUM|VARINT|\"NULL\"": "CAST({0} AS VARCHAR)",
}


def types_of(made: Connection, sql: str, parameters: Sequence[Any] = ()) -> dict[str, str]:
    """The columns of a table or of what stands for one, by name: their types as DuckDB writes them."""
    described = made.execute(f"DESCRIBE SELECT * FROM {sql}", parameters).fetchall()
    return {name: kind for name, kind, *_ in described}


def sql_of_id(name: str, key: str, types: Mapping[str, str], *, option: str = "primary_key=") -> str:
    """What makes the column ``key`` of ``name`` a text. ``option`` is what its name is given with, for an error.

    Raises ValidationError where there is no such column, or its type is none of ids.
    """
    kind = types.get(key)
    if kind is None:
        raise missing_column(name, key, list(types), option=option)
    for pattern, sql in _ID_SQL.items():
        if _matches(pattern, kind):
            return sql.format(quoted(key))
    raise ValidationError(
        f"{plain(name)}: {plain(key, 60)} is of type {plain(kind, 60)}; user ids are texts or whole "
        "numbers: turn them into those in a query, as CAST(... AS VARCHAR)"
    )


def sql_of_kind(id_sql: str, key: str) -> str:
    """What tells, of a row whose id is NULL, which kind of value that is; NULL where nothing but NULL can be."""
    return f"json_type({quoted(key)})" if "json_type" in id_sql else "NULL"


def no_id(missing: bool, kind: str | None) -> str:
    """What an id is that is none: ``missing`` or else empty, and what ``sql_of_kind`` told."""
    if not missing:
        return "empty"
    return "NULL" if kind in (None, "NULL") else f"JSON of type {kind}: a text or an integer is needed"


class Fields:
    """The columns that are sent along with an id: the SQL to select, and what is made of the result."""

    def __init__(self, name: str, types: Mapping[str, str], names: Sequence[str]) -> None:
        self._name = name
        self._names = names
        self.sql = [_value_sql(name, each, types[each]) for each in names]
        """In the order of ``names``. Raises ValidationError for a column that JSON has no form for."""
        self._nested = [each for each in names if _matches(_NESTED, types[each])]
        self._large = [each for each in names if types[each] in ("HUGEINT", "UHUGEINT")]

    def of(self, rows: Iterable[tuple[Any, ...]], first: int | None = None) -> list[Row]:
        """Each row, the id and then these columns, as the id with those that are not NULL.

        ``first`` is the number of the first, for an error. Raises ValidationError for what is no JSON.
        """
        batch: list[Row] = [(row[0], _fields(self._names, row)) for row in rows]
        for number, (_, fields) in enumerate(batch if self._nested else (), first or 0):
            for name in fields.keys() & self._nested:
                fields[name] = self._decoded(fields[name], name, f", row {number}" if first else "")
        for _, fields in batch if self._large else ():
            for name in fields.keys() & self._large:
                fields[name] = fitting(fields[name])
        return batch

    def _decoded(self, text: str, name: str, where: str) -> Any:
        try:
            return fitting(msgspec.json.decode(text))
        except (msgspec.DecodeError, RecursionError):
            raise ValidationError(
                f"{plain(self._name)}{where}: {plain(name, 60)} can't be written as JSON (a NaN in it?)"
            ) from None


def quoted(name: str) -> str:
    """A name as SQL writes it."""
    return '"' + name.replace('"', '""') + '"'


def _fields(names: Sequence[str], row: tuple[Any, ...]) -> dict[str, Any]:
    """The columns that are not NULL."""
    fields = dict(zip(names, row[1:], strict=True))
    return {name: value for name, value in fields.items() if value is not None} if None in row else fields


def _value_sql(table: str, name: str, kind: str) -> str:
    for pattern, sql in _VALUE_SQL.items():
        if _matches(pattern, kind):
            return sql.format(quoted(name))
    raise ValidationError(
        f"{plain(table)}: column {plain(name, 60)} is of type {plain(kind, 60)}, which JSON has no form for: leave it "
        "out, or turn it into a text, in a query"
    )


def _matches(pattern: str, kind: str) -> bool:
    return re.fullmatch(pattern, kind, re.DOTALL) is not None
