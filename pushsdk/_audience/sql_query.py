"""Audiences from one SELECT: the columns that feed the ids are read as text, as their file writes them.

DuckDB guesses the types in CSV and JSON files: the id ``00123`` becomes 123. So the query is bound to empty tables
with the guessed types, and DuckDB's plan says which columns feed the ids. All others keep their types.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import msgspec

from pushsdk._audience.duckdb_reader import (
    NO_TEXT,
    VIEW,
    Connection,
    DuckdbSource,
    column_types,
    connection,
    duckdb_errors,
    duckdb_module,
    literal,
    quoted,
    shown_types,
)
from pushsdk._audience.query_plan import NONE, Json, Origins, Trace
from pushsdk._audience.source import FileListing, found_files, printable
from pushsdk._core.errors import ValidationError


class SqlQuery(DuckdbSource):
    """One SELECT result. The query may name files."""

    def __init__(self, sql: str, *, key: str) -> None:
        self._sql = sql
        self._folder = os.getcwd()
        super().__init__("the query", key=key)

    def description(self) -> str:
        digest = hashlib.sha256(self._sql.encode(errors="replace")).hexdigest()[:16]
        return f"query {digest}: {printable(' '.join(self._sql.split()))}"

    @contextmanager
    def _opened(self) -> Iterator[Connection]:
        tables: list[Json] = []
        names = set[str]()

        def noted(node: Json) -> Json:
            if node.get("type") in ("BASE_TABLE", "TABLE_FUNCTION"):
                tables.append(node)
            names.add(node.get("key", "").lower())
            return node

        with connection() as db, duckdb_errors(self._name):
            tree = _called(db, "serialize_sql", self._sql, noted)
            if len(tree.get("statements", ())) != 1:
                problem = "it is not one SELECT statement"
                if tree.get("error_type") == "parser":
                    problem = tree["error_message"]
                raise ValidationError(f"the query: {printable(problem)}")
            files = [*self._files(db, tables, names)]
            if _reader_of(db, self._sql):
                _show_texts(db, self._sql, self._key, tree, tables)
            else:
                db.execute(f"CREATE TEMP VIEW {VIEW} AS {self._sql}")  # or DuckDB says what is wrong
            yield db
        for listing in files:
            listing.check_unchanged()

    def _files(self, db: Connection, tables: Sequence[Json], names: set[str]) -> Iterator[FileListing]:
        """Yield the files that the query names, from the folder where the query was made.

        Raises ValidationError if one of the names that the query gives, in lower case, is a file's.
        """
        for each in _names_in(db, tables):
            name = re.sub("^file:(//(localhost)?)?", "", os.path.expanduser(str(each)))
            listing = found_files(os.path.join(self._folder, name))
            if listing.paths:
                listing.check_regular()
                if name.lower() in names:
                    raise ValidationError(
                        f"the query: {printable(name)} in WITH or REPLACE is a file: write another name"
                    )
                if os.getcwd() != self._folder and not os.path.isabs(name):
                    raise ValidationError(
                        f"the query names files in {printable(self._folder)}, which was the working directory before: "
                        "write their absolute paths"
                    )
                yield listing


# A JSON value's text. DuckDB has lost the digits that the file has for a number that is not an integer.
_AS_WRITTEN = f"""
CASE WHEN json_type({{0}}) = 'VARCHAR' THEN {{0}}->>'$'
WHEN regexp_full_match(CAST({{0}} AS VARCHAR), '-?[0-9]+') THEN CAST({{0}} AS VARCHAR)
WHEN json_type({{0}}) <> 'NULL' THEN error('{NO_TEXT}' || left(CAST({{0}} AS VARCHAR), 0)) END
"""
_WRITTEN = {"JSON": _AS_WRITTEN, "JSON[]": f"list_transform({{0}}, lambda value: {_AS_WRITTEN.format('value')})"}
# Types without parts.
_PLAIN = re.compile(r"\A[^(\[]+\Z")


class _Source(msgspec.Struct):
    """A file or table function in a FROM clause."""

    table: str
    """The table, and later the view, that takes its place."""
    named: str
    """The table or table function in the query."""
    call: str
    """The same, for CSV with options for plain quotation marks."""
    reader: str
    """CSV or JSON if types are guessed, else empty."""
    types: dict[str, str]
    text: dict[str, str] = {}
    """The types to state: for the columns that may feed the ids and have a guessed type. Only texts keep the ids."""

    def find_text(self, db: Connection, origins: Origins | None) -> None:
        """Set ``text``, and the types in the table. ``origins`` are the columns that feed the ids; None if any may."""
        # Without guesses, a CSV column is text, and a JSON file has one column unless the columns are stated.
        option = "auto_type_candidates = ['VARCHAR']" if self.reader == "CSV" else "maximum_depth = 0"
        stated = column_types(db, _call_with(self.call, option))
        if self.reader == "JSON" and stated != self.types:
            # In JSON text, too, as a later number would change in it.
            stated = dict.fromkeys(self.types, "")
        # By position: the first row may pass for the header now.
        for (column, kind), known in zip(self.types.items(), stated.values(), strict=True):
            if kind != known and (origins is None or (self.table, column) in origins):
                self.text[column] = text = _PLAIN.sub("VARCHAR", kind)
                db.execute(f"ALTER TABLE {self.table} ALTER {quoted(column)} TYPE {text}")

    def show(self, db: Connection) -> bool:
        """Create the view, with text in the columns that feed the ids. Return False if the file can't be read so."""
        types = {**self.types, **self.text}
        # DuckDB would write the number 1e3 as the text 1000.0.
        values = {name: text.replace("VARCHAR", "JSON") for name, text in self.text.items() if self.reader == "JSON"}
        if not {"VARCHAR", "VARCHAR[]"}.issuperset(self.text.values()) or (values and _has_numbered(types)):
            return False
        call = _call_with(self.call, self._option({**types, **values}))
        written = [f"{_WRITTEN[kind].format(quoted(column))} AS {quoted(column)}" for column, kind in values.items()]
        replaced = f" REPLACE ({', '.join(written)})" if written else ""
        db.execute(f"CREATE OR REPLACE TEMP VIEW {self.table} AS SELECT *{replaced} FROM {call}")
        return shown_types(db, self.table) == types

    def fix(self, ordered: Origins) -> str:
        """Return the option to write, and where. ``ordered`` are the columns whose order chooses users."""
        numbers = {column: self.types[column] for table, column in ordered if table == self.table}
        types = {**self.types, **self.text, **numbers}
        # No guess: it may change an id, and its parts may be keys that are ids.
        types = {column: kind if _PLAIN.match(kind) else "JSON" for column, kind in types.items()}
        return printable(f"{self._option(types)} in {self.named}", 2000)

    def _option(self, types: Mapping[str, str]) -> str:
        """Return the option that states types, if there is a text. In CSV, DuckDB still guesses the other types."""
        name, columns = ("types", self.text) if self.reader == "CSV" else ("columns", types)
        if not self.text:
            return ""
        return f"{name} = {{{', '.join(f'{literal(column)}: {literal(types[column])}' for column in columns)}}}"


def _call_with(call: str, *options: str) -> str:
    return call[:-1] + "".join(f", {each}" for each in options if each) + call[-1]


def _has_numbered(names: Iterable[str]) -> bool:
    """Return True if DuckDB may have numbered a JSON key that differs from another only in case: no key in the file."""
    folded = {name.casefold() for name in names}
    return any(re.sub(r"_\d+$", "", name) in folded - {name} for name in folded)


def _reader_of(db: Connection, select: str) -> str | None:
    """Return CSV or JSON if a query reads a file whose types are guessed, else an empty text; None for wrong SQL."""
    with suppress(duckdb_module().Error):
        [(_, plan)] = db.execute(f"EXPLAIN (FORMAT json) {select}").fetchall()
        # Those that end in _OBJECTS guess no types.
        return next(iter(re.findall(r'"READ_(?:ND)?(CSV|JSON)(?:_AUTO)? *"', plan)), "")
    return None


def _show_texts(db: Connection, sql: str, key: str, tree: Json, tables: Sequence[Json]) -> None:
    """Create the result view for a query, with text in the columns that feed the ids.

    Raises ValidationError if these columns can't be found, or if the query needs their guessed types.
    """
    sources: list[_Source] = []
    for node in tables:
        _replace_source(db, node, sources)
    query = _called(db, "deserialize_sql", json.dumps(tree))
    fixes, is_exact = _fixes(db, query, key, sources)
    if is_exact or not fixes:
        # The query itself if it has a column that is in no table, such as filename.
        for each in [query] if fixes else [query, sql]:
            with suppress(duckdb_module().Error):
                if all(source.show(db) for source in sources):
                    db.execute(f"CREATE OR REPLACE TEMP VIEW {VIEW} AS {each}")
                    return
    raise ValidationError(
        f"the query: DuckDB guesses the types of the columns that {printable(key, 60)} is made from or compared "
        "with. As a number, 00123 would become 123, and one with decimals equal to ids near it; as a text, 9 would "
        f"sort after 100. State the types, as {' and '.join(fixes)}; "
        "use CAST where the query needs another type"
    )


def _fixes(db: Connection, query: str, key: str, sources: Sequence[_Source]) -> tuple[list[str], bool]:
    """Return the types to state, and whether the ids are right without them. The tables are gone then."""

    def traced(kind: str = "") -> Trace:
        trace = Trace(kind)
        with suppress(duckdb_module().Error, LookupError, TypeError, ValueError, RecursionError):
            columns = trace.columns(_called(db, "serialize_plan", query)["plans"][0])
            # A missing key is an error later.
            trace.result = dict(zip(column_types(db, f"({query})"), columns, strict=True)).get(key, NONE)
        return trace

    def find_texts(columns: Origins | None) -> None:
        for file in files:
            if columns != NONE:
                file.find_text(db, columns)

    def find_compared(ids: Origins) -> Origins:
        """Find the texts that ids are compared with. Return the columns compared with a float or as one."""
        floats = {(file.table, name) for file in files for name, kind in file.types.items() if "DOUBLE" in kind}
        pairs = {*zip(traced().compared, traced("^{'id': 'VARCHAR'").compared, strict=True)}
        texts = numbers = NONE
        linked = ids
        for columns, as_text in [*pairs] * len(pairs):
            if columns & linked:
                linked |= columns
                if as_text & ids:
                    texts |= columns - as_text
                elif columns & floats:
                    numbers |= columns - ids
        # The text that a query makes from a number is not the text in the file.
        find_texts(texts)
        return numbers

    files = [source for source in sources if source.reader]
    ids = traced().result
    ordered = traced("^(?!.*VARCHAR)").ordered
    find_texts(ids)
    # As JSON, a text would be compared with the quotation marks around it.
    find_texts(NONE.union(*traced("JSON").compared))
    numbers = find_compared(ids or NONE)
    # Not if the query itself sorts texts, which it made.
    ordered &= traced("VARCHAR").ordered
    # As floats, two ids that are near are equal; as integers, 1.5 and 2 are.
    find_texts(numbers)
    for source in sources:
        db.execute(f"DROP TABLE {source.table}")
    return [source.fix(ordered) for source in sources if source.text], ids is not None and not ordered | numbers


def _called(db: Connection, function: str, argument: str, hook: Any = None) -> Any:
    [(result,)] = db.execute(f"SELECT to_json(json_{function}(?))", [argument]).fetchall()
    return json.loads(result, object_hook=hook)


def _name_of(table: Json) -> str:
    """Return a table's name, which may be a file's: DuckDB reads ``users.csv`` without quotes as schema and table."""
    return ".".join(filter(None, map(table.get, ("catalog_name", "schema_name", "table_name"))))


def _names_in(db: Connection, tables: Sequence[Json]) -> Iterator[Any]:
    """Yield the names and patterns of the files that table functions read, and the names of tables, which may be files.

    Raises ValidationError for a function that takes SQL, as the files in it are not known.
    """
    for node in tables:
        if "function" not in node:
            if "." in _name_of(node):  # DuckDB needs a suffix
                yield _name_of(node)
            continue
        function = node["function"]
        if re.match("query|json_execute|histogram", function["function_name"]):
            raise ValidationError(f"the query: write the query or table itself, not in {function['function_name']}")
        if re.match("read_|parquet_|sniff_csv|glob", function["function_name"]):
            # Before DuckDB 2, an argument had no name.
            for first in (function.get("children") or function.get("arguments", ()))[:1]:
                yield from _constants(db, first.get("expression", first))


def _constants(db: Connection, expression: Json) -> Iterator[Any]:
    """Yield the value of an expression, or the values in it if it is a list; none if it is not constant."""
    select = _called(db, "serialize_sql", "SELECT 1")
    select["statements"][0]["node"]["select_list"] = [expression]
    # Else the error of the whole query says more.
    with suppress(duckdb_module().Error):
        [(value,)] = db.execute(_called(db, "deserialize_sql", json.dumps(select))).fetchall()
        yield from value if isinstance(value, (list, tuple)) else [value]


def _replace_source(db: Connection, node: Json, sources: list[_Source]) -> None:
    name = f"pushsdk_{len(sources)}"
    tree = _called(db, "serialize_sql", f"FROM {name}")
    select = tree["statements"][0]["node"]
    table = select["from_table"]
    select["from_table"] = {**node, "alias": "", "sample": None, "column_name_alias": []}
    call = _called(db, "deserialize_sql", json.dumps(tree)).removeprefix("SELECT * FROM ")
    reader = _reader_of(db, f"FROM {call}")
    if reader is None:
        return  # a common table expression, or a function that reads another table's columns
    if "function" in node:
        alias = node["function"]["function_name"]
    else:
        file = _name_of(node)
        alias = file.rpartition("/")[2].partition(".")[0]
        if reader:
            call = f"read_{reader.lower()}({literal(file)})"
    plain = _plain_call(db, call) if reader == "CSV" else call
    db.execute(f"CREATE TEMP TABLE {name} AS FROM {plain} LIMIT 0")
    sources.append(_Source(name, call, plain, reader, column_types(db, name)))
    # DuckDB passes over the function, which stays.
    node.update(table, alias=node["alias"] or alias, sample=node["sample"], column_name_alias=node["column_name_alias"])


# Guesses lose users or change ids, as their signs may come late, or belong to an id. The first options that a file can
# be read with are added to a call.
_QUOTES = ("quote = '\"', escape = '\"'", "quote = '\"'", "quote = ''")
# As many rows as DuckDB looks at to guess.
_SAMPLE = "LIMIT 20480"
# The options in a call, as name = value or name := value. Texts, and the columns in a struct, are passed over, and so
# are two options unless they have the value that stops a guess.
_STATED = re.compile(
    r"struct_pack\((?:'[^']*'|[^'()])*\)|'[^']*'"
    r"|auto_detect :?= (?!false|cast\('f)|null_padding :?= (?!true|cast\('t)|(\w+)\"? :?= "
)


def _plain_call(db: Connection, call: str) -> str:
    """Add options for double quotation marks or none, and for no comments.

    Raises ValidationError if DuckDB guesses others or leaves out first lines, as these may have ids.
    """
    stated = {*_STATED.findall(call.lower())}
    quotes = ("",) if stated & {"quote", "escape"} else _QUOTES
    comments = "" if "comment" in stated else "comment = ''"
    fix = _MARKS
    for quote in quotes:
        plain = _call_with(call, quote, comments)
        with suppress(duckdb_module().Error):
            fix = _fix_of_guess(db, call, plain, stated)
            if not fix:
                return plain
            break
    db.execute(f"FROM {call} {_SAMPLE}").fetchall()  # raises if the file is no CSV
    raise ValidationError(
        "the query: quotation marks, comments or first lines that DuckDB leaves out may belong to ids: state "
        f"{fix} in {printable(call)}"
    )


_MARKS = "quote = '\"' or quote = '''', and comment = '#' or comment = ''"


def _fix_of_guess(db: Connection, call: str, plain: str, stated: set[str]) -> str:
    """Return the options to state if ids may be lost by a guess."""
    names = column_types(db, plain)
    # With stated names, DuckDB takes a first row of texts for a header; without detection, a header for a row.
    is_known = "header" in stated or stated >= {"auto_detect", "skip"}
    if not is_known and stated & {"names", "columns", "column_names"}:
        return "header = true or header = false"
    if "skip" not in stated and _has_another_header(db, plain, names, is_padded="null_padding" in stated):
        return "skip = 0 or skip = 1"
    lost = db.execute(f"(FROM {call} {_SAMPLE}) EXCEPT (FROM {plain} {_SAMPLE}) LIMIT 1").fetchall()
    return _MARKS if lost else ""


def _has_another_header(db: Connection, plain: str, names: Mapping[str, str], *, is_padded: bool) -> bool:
    """Return True if a header is among the lines that DuckDB skips, as in a file made from files with other columns.

    If rows are padded, no line is skipped, and such a header is a row.
    """
    if is_padded:
        first = next(iter(names))
        rows = db.execute(f"FROM (FROM {plain} {_SAMPLE}) WHERE {quoted(first)}::VARCHAR = {literal(first)} LIMIT 1")
        return bool(rows.fetchall())
    whole = column_types(db, _call_with(plain, "skip = 0"))
    return whole != names and not names.keys().isdisjoint(re.split("[,;|\t]", ",".join(whole)))
