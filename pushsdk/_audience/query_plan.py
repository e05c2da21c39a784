"""The table columns that a query's column comes from, found in DuckDB's plan.

A plan is an operator tree, as ``json_serialize_plan`` writes it. Values flow from the tables to the result;
conditions, sort orders and groups only decide about rows. An operator without a rule ends the search.
"""

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Json = dict[str, Any]
Origins = frozenset[tuple[str, ...]]
"""Tables and columns; also with a third part, ``ORDER``, if the order of the column's values counts."""
Columns = list[Origins]

# The expression parts that choose among values or sort them, and add none.
_CHOOSING = re.compile("when_expr|filter(_expr)?|order_bys|partitions|(arg_)?orders")
# The functions that choose or return a place by the order of other arguments, with the number of arguments, from the
# first, whose values they pass on.
_PASSED_ON = {
    r"\b(arg_?(max|min)\w*|(max|min)_by)\b": 1,
    r"\b(((list|array)_)?grade_up|(list|array)_(position|indexof))\b": 0,
}
# The functions that choose by the order of their values, or have another result for a number as text.
_ORDERING = (
    r"\b(((list|array)_)?(max|min|median|mode)|greatest|least|hash"
    r"|\w*(sort|quantile|aggr|histogram|top_k|hex|bin)\w*)\b"
)
_NONE: Origins = frozenset()
ORDER = "order"


def origins_of(plan: Json, names: Sequence[str], column: str) -> Origins:
    """Return the table columns whose values are in a result column. ``names`` has all result columns.

    Raises LookupError for an operator without a rule, and for a later plan format possibly also TypeError or
    ValueError.
    """
    return dict(zip(names, _Tracer().columns(plan), strict=True))[column]


def _origins(node: Any, inputs: Sequence[Origins]) -> Origins:
    """Return the origins for all columns whose values are in an expression's value."""
    if not isinstance(node, dict):
        return _NONE.union(*_made(node, inputs)) if isinstance(node, list) else _NONE
    if node.get("type") == "BOUND_REF":
        return inputs[node["index"]]
    values, ordered = _made(_parts(node, str(node.get("qname", node.get("name")))), inputs)
    return values.union((*origin[:2], ORDER) for origin in ordered)


def _parts(node: Json, function: str) -> tuple[list[Any], list[Any]]:
    """Return the parts whose values are in an expression's value, and those whose order counts."""
    for pattern, number in _PASSED_ON.items():
        if re.search(pattern, function):
            return node["children"][:number], node["children"][number:]
    values = [part for name, part in node.items() if not _CHOOSING.fullmatch(name)]
    return values, values if re.search(_ORDERING, function) else []


def _made(expressions: Sequence[Any], inputs: Sequence[Origins]) -> Columns:
    return [_origins(expression, inputs) for expression in expressions]


def _united(*rows: Columns) -> Columns:
    return [_NONE.union(*column) for column in zip(*rows, strict=True)]


def _read(_: object, operator: Json) -> Columns:
    table, names = operator["function_data"]["table"], operator["names"]
    # A position behind the last column is the row number.
    positions = [column["index"] for column in operator["column_indexes"]]
    return [frozenset({(table, names[position])}) if position < len(names) else _NONE for position in positions]


def _kept(columns: Columns, positions: Sequence[int]) -> Columns:
    """Return the columns that an operator passes on; no positions are all."""
    return [columns[position] for position in positions] or columns


class _Tracer:
    """A walk through one plan."""

    def __init__(self) -> None:
        #: The columns in each common table expression, by number. Extended by ``share``.
        self.shared: dict[int, Columns] = {}
        #: The columns that a correlated subquery gets. Set by ``join``.
        self.outer: Columns = []

    def columns(self, operator: Json) -> Columns:
        """Return the origins for each column in the operator's result."""
        return _RULES[operator["type"].removeprefix("LOGICAL_")](self, operator)

    def inputs(self, operator: Json) -> Columns:
        """Return the columns from all children, one after another."""
        return list(itertools.chain.from_iterable(map(self.columns, operator["children"])))

    def extend(self, operator: Json) -> Columns:
        """Return the input, and a column for each expression."""
        inputs = self.inputs(operator)
        return inputs + _made(operator["expressions"], inputs)

    def join(self, operator: Json) -> Columns:
        left, right = operator["children"]
        first, outer = self.columns(left), self.outer
        self.outer = _made(operator.get("duplicate_eliminated_columns", ()), first) or outer
        second = self.columns(right)
        self.outer = outer
        second = _kept(second, operator.get("right_projection_map", ()))
        # The columns of the right side, unless it only decides about rows.
        added = {"SEMI": [], "ANTI": [], "MARK": [_NONE]}.get(operator.get("join_type", ""), second)
        return _kept(first, operator.get("left_projection_map", ())) + added

    def share(self, operator: Json) -> Columns:
        definition, query = operator["children"]
        self.shared[operator["table_index"]] = self.columns(definition)
        return self.columns(query)


# Not EXCEPT and INTERSECT: text is not equal there to the same number.
_RULES: Mapping[str, Callable[[_Tracer, Json], Columns]] = {
    "GET": _read,
    "PROJECTION": lambda tracer, operator: _made(operator["expressions"], tracer.inputs(operator)),
    "AGGREGATE_AND_GROUP_BY": lambda tracer, operator: _made(
        operator["groups"] + operator["expressions"] + operator["grouping_functions"], tracer.inputs(operator)
    ),
    "WINDOW": _Tracer.extend,
    "UNNEST": _Tracer.extend,
    **dict.fromkeys(
        ("FILTER", "ORDER_BY", "LIMIT", "DISTINCT", "SAMPLE"),
        lambda tracer, operator: _kept(tracer.inputs(operator), operator.get("projection_map", ())),
    ),
    **dict.fromkeys(
        ("CROSS_PRODUCT", "COMPARISON_JOIN", "ANY_JOIN", "DELIM_JOIN", "POSITIONAL_JOIN", "ASOF_JOIN"), _Tracer.join
    ),
    "UNION": lambda tracer, operator: _united(*map(tracer.columns, operator["children"])),
    "MATERIALIZED_CTE": _Tracer.share,
    "CTE_REF": lambda tracer, operator: tracer.shared[operator["cte_index"]],
    "DELIM_GET": lambda tracer, _: tracer.outer,
    "DUMMY_SCAN": lambda *_: [_NONE],
    # VALUES may read an outer query's columns.
    "EXPRESSION_GET": lambda tracer, operator: _united(
        *[_made(row, tracer.inputs(operator)) for row in operator["expressions"]]
    ),
    "EMPTY_RESULT": lambda _, operator: [_NONE] * len(operator["return_types"]),
}
