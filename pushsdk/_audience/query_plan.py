"""The table columns that a query's column comes from, found in DuckDB's plan.

A plan is an operator tree, as ``json_serialize_plan`` writes it. Values flow from the tables to the result;
conditions, sort orders and groups only decide about rows. An operator without a rule ends the search.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Json = dict[str, Any]
Origins = frozenset[tuple[str, str]]
"""Tables and columns."""
Columns = list[Origins]

# The expression parts that sort values, and those that choose among them by conditions.
_SORTING = ("order_bys", "orders", "arg_orders")
_CONDITIONS = ("when_expr", "filter", "filter_expr", "partitions")
# The functions that choose among the values in their first argument by the order of the others.
_CHOOSERS = r"\b(arg_?(max|min)\w*|(max|min)_by)\b"
# The functions and comparisons that choose by the order of their values, or have another result for a number as text.
_ORDERING = (
    r"\b(((list|array)_)?(max|min|median|mode)|greatest|least|hash|COMPARE_[LG]\w+"
    r"|\w*(grade|sort|quantile|aggr|histogram|top_k|hex|bin)\w*)\b"
)
# The operators that choose or join rows by their order.
_BY_ORDER = ("AGGREGATE_AND_GROUP_BY", "DISTINCT", "LIMIT", "POSITIONAL_JOIN", "WINDOW")
NONE: Origins = frozenset()


def _parts(node: Json) -> tuple[list[Any], list[Any]]:
    """Return the parts whose values are in an expression's value, and those whose order chooses."""
    function = f"{node.get('type')} {node.get('qname', node.get('name'))}"
    if re.search(_CHOOSERS, function):
        return node["children"][:1], node["children"][1:]
    values = [part for name, part in node.items() if name not in (*_SORTING, *_CONDITIONS)]
    return values, values if re.search(_ORDERING, function) else [node.get(name) for name in _SORTING]


def _united(*rows: Columns) -> Columns:
    return [NONE.union(*column) for column in zip(*rows, strict=True)]


def _read(_: object, operator: Json) -> Columns:
    table = operator["function_data"]["table"]
    columns = dict(enumerate(frozenset({(table, name)}) for name in operator["names"]))
    # A position behind the last column is the row number.
    return [columns.get(column["index"], NONE) for column in operator["column_indexes"]]


def _kept(columns: Columns, positions: Sequence[int]) -> Columns:
    """Return the columns that an operator passes on; no positions are all."""
    return [columns[position] for position in positions] or columns


class Trace:
    """The table columns that a result column depends on, found in a walk through a plan.

    Only values whose type matches the pattern ``kind`` count.
    """

    def __init__(self, kind: str) -> None:
        self._kind = kind
        #: The columns whose values are in the result column; None if that is unknown. Set by whoever has the plan.
        self.result: Origins | None = None
        #: The columns whose order chooses, and those that sort rows. Extended by ``origins``, ``columns`` and ``sort``.
        self.ordered = self.sorting = NONE
        #: The columns in each comparison. Extended by ``origins`` and ``join``.
        self.compared: list[Origins] = []
        #: The columns in each common table expression, by number. Extended by ``share``.
        self.shared: dict[int, Columns] = {}
        #: The columns that a correlated subquery gets. Set by ``join``.
        self.outer: Columns = []

    def columns(self, operator: Json) -> Columns:
        """Return the origins for each column in the operator's result.

        Raises LookupError for an operator without a rule, and for a later plan format possibly also TypeError or
        ValueError.
        """
        kind = operator["type"].removeprefix("LOGICAL_")
        columns = _RULES[kind](self, operator)
        if kind in _BY_ORDER:
            self.ordered |= self.sorting
        return columns

    def made(self, expressions: Sequence[Any], inputs: Sequence[Origins]) -> Columns:
        return [self.origins(expression, inputs) for expression in expressions]

    def origins(self, node: Any, inputs: Sequence[Origins]) -> Origins:
        """Return the origins for all columns whose values are in an expression's value."""
        if not isinstance(node, dict):
            return NONE.union(*self.made(node, inputs)) if isinstance(node, list) else NONE
        if node.get("type") == "BOUND_REF":
            values = inputs[node["index"]]
        else:
            values, ordered = self.made(_parts(node), inputs)
            self.ordered |= ordered
            if "COMPARE" in node.get("type", ""):
                self.compared.append(values)
            self.made([node.get(name) for name in _CONDITIONS], inputs)
        kind = node.get("return_type")
        return values if kind is None or re.search(self._kind, str(kind)) else NONE

    def inputs(self, operator: Json) -> Columns:
        """Return the columns from all children, one after another."""
        return [column for child in operator["children"] for column in self.columns(child)]

    def extend(self, operator: Json) -> Columns:
        """Return the input, and a column for each expression."""
        inputs = self.inputs(operator)
        return inputs + self.made(operator["expressions"], inputs)

    def keep(self, operator: Json) -> Columns:
        inputs = self.inputs(operator)
        self.origins({**operator, "children": ()}, inputs)
        return inputs

    def sort(self, operator: Json) -> Columns:
        inputs = self.inputs(operator)
        self.sorting |= self.origins(operator["orders"], inputs)
        return inputs

    def join(self, operator: Json) -> Columns:
        left, right = operator["children"]
        first, outer = self.columns(left), self.outer
        self.outer = self.made(operator.get("duplicate_eliminated_columns", ()), first) or outer
        second = self.columns(right)
        self.outer = outer
        for condition in operator.get("conditions", ()):
            compared = self.origins(condition["left"], first) | self.origins(condition["right"], second)
            self.compared.append(compared)
            if re.search(_ORDERING, condition["comparison"]):
                self.ordered |= compared
        self.origins(operator.get("condition"), first + second)
        second = _kept(second, operator.get("right_projection_map", ()))
        # The columns of the right side, unless it only decides about rows.
        added = {"SEMI": [], "ANTI": [], "MARK": [NONE]}.get(operator.get("join_type", ""), second)
        return _kept(first, operator.get("left_projection_map", ())) + added

    def share(self, operator: Json) -> Columns:
        definition, query = operator["children"]
        self.shared[operator["table_index"]] = self.columns(definition)
        return self.columns(query)


# Not EXCEPT and INTERSECT: text is not equal there to the same number.
_RULES: Mapping[str, Callable[[Trace, Json], Columns]] = {
    "GET": _read,
    "PROJECTION": lambda tracer, operator: tracer.made(operator["expressions"], tracer.inputs(operator)),
    "AGGREGATE_AND_GROUP_BY": lambda tracer, operator: tracer.made(
        operator["groups"] + operator["expressions"] + operator["grouping_functions"], tracer.inputs(operator)
    ),
    "WINDOW": Trace.extend,
    "UNNEST": Trace.extend,
    "ORDER_BY": Trace.sort,
    **dict.fromkeys(("FILTER", "LIMIT", "DISTINCT", "SAMPLE"), Trace.keep),
    **dict.fromkeys(
        ("CROSS_PRODUCT", "COMPARISON_JOIN", "ANY_JOIN", "DELIM_JOIN", "POSITIONAL_JOIN", "ASOF_JOIN"), Trace.join
    ),
    "UNION": lambda tracer, operator: _united(*map(tracer.columns, operator["children"])),
    "MATERIALIZED_CTE": Trace.share,
    "CTE_REF": lambda tracer, operator: tracer.shared[operator["cte_index"]],
    "DELIM_GET": lambda tracer, _: tracer.outer,
    "DUMMY_SCAN": lambda *_: [NONE],
    # VALUES may read an outer query's columns.
    "EXPRESSION_GET": lambda tracer, operator: _united(
        *[tracer.made(row, tracer.inputs(operator)) for row in operator["expressions"]]
    ),
}
