"""What a segment's query may hold: rules over its syntax tree, as DuckDB writes that in JSON. Pure.

The engine's own locks are behind these rules. What they leave open, as writing from within a SELECT, reading the
settings and the temporary files, or spelling out a file instead of its table, is closed here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from pushsdk._broadcast._source import plain
from pushsdk.emulator.tables import SegmentError, Table, no_such_table

__all__ = ["LONGEST", "check_text", "tables_in"]

LONGEST = 100_000
"""Characters of a query."""

_READS = frozenset({"CTE_NODE", "RECURSIVE_CTE_NODE", "SELECT_NODE", "SET_OPERATION_NODE"})
_SOURCES = frozenset({"BASE_TABLE", "EMPTY", "EXPRESSION_LIST", "JOIN", "PIVOT", "SUBQUERY", "TABLE_FUNCTION"})
_ORDERS = frozenset({"ASCENDING", "DESCENDING", "ORDER_DEFAULT"})
# All that is neither read nor source nor order, by its ending.
_PARTS = ("_MODIFIER", "_TYPE_INFO")
# Those that make rows out of their arguments. Every other one reads something else than the tables.
_TABLE_FUNCTIONS = frozenset({"generate_series", "json_each", "json_tree", "range", "repeat", "unnest"})
# Those that tell of the engine and its settings, wait, or leave something behind.
_FUNCTIONS = frozenset(
    {
        "current_query",
        "current_setting",
        "currval",
        "getenv",
        "getvariable",
        "json_serialize_plan",
        "nextval",
        "pg_get_viewdef",
        "pg_sleep",
        "setseed",
        "setval",
        "sleep_ms",
        "write_log",
    }
)


def check_text(query: str) -> None:
    """Raises `SegmentError` for a text that is not even shown to the parser."""
    if not query.strip():
        raise SegmentError("the segment's query is empty: write a SELECT over the tables")
    if len(query) > LONGEST:
        raise SegmentError(f"the query is over {LONGEST:,} characters long: put its lists into a table")
    if "\0" in query:
        raise SegmentError("the query holds a NUL character: take it out")
    try:
        query.encode()
    except UnicodeEncodeError:
        raise SegmentError("the query holds a lone surrogate, which is not Unicode: take it out") from None


def tables_in(tree: Any, tables: Mapping[str, Table], *, internal: Collection[str]) -> list[Table]:
    """The tables that the query of this tree reads, each once.

    ``internal`` are names in lower case that mean something of the engine's own. Raises `SegmentError` for
    everything that is not reading tables.
    """
    if tree.get("error"):
        raise SegmentError("the query is not one SELECT statement: a segment only reads tables")
    named: dict[str, None] = {}
    ctes: set[str] = set()
    for part in _parts(tree):
        _check_part(part)
        if part.get("type") == "BASE_TABLE":
            named[_plain_name(part)] = None
        ctes.update(entry["key"].lower() for entry in part.get("cte_map", {}).get("map", ()))
    for name in ctes & set(internal):
        raise SegmentError(f"WITH {plain(name, 60)}: the name is DuckDB's own, take another one")
    for name in named:
        if name.lower() not in tables and name.lower() not in ctes:
            raise no_such_table(name, tables)
    return [tables[key] for key in dict.fromkeys(map(str.lower, named)) if key in tables]


def _parts(tree: Any) -> Iterator[dict[str, Any]]:
    """All objects of the tree, however deep."""
    waiting = [tree]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            yield each
            waiting.extend(reversed(each.values()))
        elif isinstance(each, list):
            waiting.extend(reversed(each))


def _check_part(part: Mapping[str, Any]) -> None:
    kind, function = part.get("type"), part.get("function_name")
    if isinstance(function, str) and function.lower() in _FUNCTIONS:
        raise SegmentError(f"{plain(function, 60)}() can't be used in a segment: leave it out")
    if isinstance(kind, str) and "class" not in part and not kind.endswith(_PARTS):
        if kind == "TABLE_FUNCTION":
            _check_table_function(part)
        elif kind not in _READS | _SOURCES | _ORDERS:
            what = kind.lower().removesuffix("_query_node").removesuffix("_ref").replace("_", " ")
            raise SegmentError(f"a segment's query only reads tables: leave out {plain(what, 60)}")


def _check_table_function(part: Mapping[str, Any]) -> None:
    function = part.get("function", {}).get("function_name", "")
    if str(function).lower() not in _TABLE_FUNCTIONS:
        allowed = ", ".join(sorted(_TABLE_FUNCTIONS))
        raise SegmentError(
            f"{plain(str(function), 60)}() can't be read from: name a table of the folder instead; only {allowed} can"
        )


def _plain_name(part: Mapping[str, Any]) -> str:
    if part.get("schema_name") or part.get("catalog_name"):
        parts = (part.get(key) for key in ("catalog_name", "schema_name", "table_name"))
        raise SegmentError(
            f"{plain('.'.join(str(each) for each in parts if each), 60)}: write the name of a table alone, without "
            "a schema"
        )
    return str(part["table_name"])
