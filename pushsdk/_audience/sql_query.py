"""Audiences from one SELECT: the columns that feed the ids are read as text, as their file writes them.

DuckDB guesses the types in CSV and JSON files: the id ``00123`` becomes 123. So the query is bound to empty tables
with the guessed types, and DuckDB's plan says which columns feed the ids. All others keep their types.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import msgspec

from pushsdk._audience.duckdb_reader import (
    NO_TEXT,
    VIEW,
    Connection,
    DuckdbSource,
    check_select,
    column_types,
    connection,
    duckdb_errors,
    duckdb_module,
    literal,
    quoted,
    shown_types,
)
from pushsdk._audience.query_plan import Json, Origins, origins_of
from pushsdk._audience.source import FileListing, found_files, printable
from pushsdk._core.errors import ValidationError

# A text where a table or an argument may be. A pattern has a slash or a suffix: others such as '*' match by chance. A
# comment is no pattern.
_NAMED = re.compile(
    r"""(?i)(?:\bfrom|join|table|pivot|summarize|[(\[,])\s*['"]+(?!/\*)([^'"]*(?:/|\.\w)[^'"]*|[^'"*?[]+)"""
)


class SqlQuery(DuckdbSource):
    """One SELECT result. The query may name files."""

    def __init__(self, sql: str, *, key: str) -> None:
        self._sql = sql
        self._folder = os.getcwd()
        super().__init__("the query", key)

    def description(self) -> str:
        digest = hashlib.sha256(self._sql.encode(errors="replace")).hexdigest()[:16]
        return f"query {digest}: {printable(' '.join(self._sql.split()))}"

    @contextmanager
    def _opened(self) -> Iterator[Connection]:
        files = [*self._files()]
        with connection() as db, duckdb_errors(self._name):
            check_select(db, self._sql)
            _show_texts(db, self._sql, self._key)
            yield db
        for listing in files:
            listing.check_unchanged()

    def _files(self) -> Iterator[FileListing]:
        """Yield the files that texts in the query name, from the folder where the query was made."""
        for text in map(os.path.expanduser, _NAMED.findall(self._sql)):
            listing = found_files(os.path.join(self._folder, text))
            if not listing.paths:
                continue
            if os.getcwd() != self._folder and not os.path.isabs(text):
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
    call: str
    """The table function with its arguments."""
    reader: str
    """CSV or JSON if types are guessed, else empty."""
    plain: Sequence[str]
    """Options to add in any case."""
    types: dict[str, str]
    text: dict[str, str] = {}
    """The types to state: for the columns that may feed the ids and have a guessed type. Only texts keep the ids."""

    def find_text(self, db: Connection, origins: Origins | None) -> None:
        """Set ``text``, and the types in the table. ``origins`` are the columns that feed the ids; None if any may."""
        # Without guesses, a CSV column is text, and a JSON file has one column unless the columns are stated.
        option = "auto_type_candidates = ['VARCHAR']" if self.reader == "CSV" else "maximum_depth = 0"
        stated = column_types(db, self._with(option))
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
        if not {"VARCHAR", "VARCHAR[]"}.issuperset(self.text.values()) or _has_numbered(self):
            return False
        types = {**self.types, **self.text}
        # DuckDB would write the number 1e3 as the text 1000.0.
        texts = self.text.items() if self.reader == "JSON" else ()
        values = {column: text.replace("VARCHAR", "JSON") for column, text in texts}
        call = self._with(self._option({**types, **values})) if self.text else self._with()
        written = [f"{_WRITTEN[kind].format(quoted(column))} AS {quoted(column)}" for column, kind in values.items()]
        replaced = f" REPLACE ({', '.join(written)})" if written else ""
        db.execute(f"CREATE OR REPLACE TEMP VIEW {self.table} AS SELECT *{replaced} FROM {call}")
        return shown_types(db, self.table) == types

    def fix(self, ordered: Origins) -> str:
        """Return the option to write, and where. ``ordered`` are the columns whose order chooses users."""
        for column in self.text:
            if (self.table, column) in ordered:
                # Refused: as a text, 9 sorts after 100.
                self.text[column] = self.types[column]
        # No guess: it may change an id, and its parts may be keys that are ids.
        types = {column: kind if _PLAIN.match(kind) else "JSON" for column, kind in self.types.items()}
        kept = [column for column, kind in self.text.items() if kind != self.types[column]]
        return printable(f"{self._option({**types, **dict.fromkeys(kept, 'VARCHAR')})} in {self.call}", 2000)

    def _option(self, types: Mapping[str, str]) -> str:
        """Return the option that states types. In CSV, DuckDB still guesses the other types."""
        name, columns = ("types", self.text) if self.reader == "CSV" else ("columns", types)
        return f"{name} = {{{', '.join(f'{literal(column)}: {literal(types[column])}' for column in columns)}}}"

    def _with(self, *options: str) -> str:
        return _call_with(self.call, *self.plain, *options)


def _call_with(call: str, *options: str) -> str:
    return ", ".join([call.removesuffix(")"), *options]) + ")" if options else call


def _has_numbered(source: _Source) -> bool:
    """Return True if DuckDB may have numbered a JSON key that differs from another only in case: no key in the file."""
    folded = {name.casefold() for name in source.types} if source.text and source.reader == "JSON" else set()
    return any(re.sub(r"_\d+$", "", name) in folded - {name} for name in folded)


def _show(db: Connection, sql: str, sources: Sequence[_Source]) -> bool:
    """Create the result view. Return False if a file can't be read with the types to state."""
    with suppress(duckdb_module().Error):
        if all(source.show(db) for source in sources):
            db.execute(f"CREATE OR REPLACE TEMP VIEW {VIEW} AS {sql}")
            return True
    return False


_FIX = "types = {'user_id': 'VARCHAR'} in read_csv('users.csv')"

# Function names in a plan. Those that end in _OBJECTS guess no types.
_READER = re.compile(r'"READ_(CSV|N?D?JSON)(_AUTO)? *"')


def _reader_of(db: Connection, select: str) -> str | None:
    """Return CSV or JSON if a query reads a file whose types are guessed, else an empty text; None for wrong SQL."""
    with suppress(duckdb_module().Error):
        [(_, plan)] = db.execute(f"EXPLAIN (FORMAT json) {select}").fetchall()
        found = _READER.search(plan)
        return found[1].removeprefix("ND") if found else ""
    return None


def _show_texts(db: Connection, sql: str, key: str) -> None:
    """Create the result view for a query, with text in the columns that feed the ids.

    Raises ValidationError if these columns can't be found, or if the query needs their guessed types.
    """
    if not _reader_of(db, sql):
        db.execute(f"CREATE OR REPLACE TEMP VIEW {VIEW} AS {sql}")  # or DuckDB says what is wrong
        return
    tree = json.loads(_called(db, "json_serialize_sql", sql))
    sources: list[_Source] = []
    _replace_sources(db, tree, sources)
    query = _called(db, "json_deserialize_sql", json.dumps(tree))
    origins, _ = _origins(db, query, key)
    fixes = _fixes(db, query, key, sources, origins)
    # The query itself if it has a column that is in no table, such as filename.
    queries = [query] if fixes else [query, sql]
    if (fixes and origins is None) or not any(_show(db, each, sources) for each in queries):
        raise ValidationError(
            f"the query: DuckDB guesses the types of the columns that {printable(key, 60)} is made from. As a number, "
            f"00123 would become 123; as a text, 9 would sort after 100. State the types, as {' and '.join(fixes)}; "
            "use CAST where the query needs another type"
        )


def _fixes(db: Connection, query: str, key: str, sources: Sequence[_Source], origins: Origins | None) -> list[str]:
    """Return the types to state. The tables are gone then."""
    # A file that is named by a text has no table.
    fixes = [_FIX] if _reader_of(db, query) else []
    numbers = _origins(db, query, key, "^(?!.*VARCHAR)")[1]
    for source in sources:
        if source.reader:
            source.find_text(db, origins)
    # Not if the query itself sorts texts, which it made.
    ordered = numbers & _origins(db, query, key, "VARCHAR")[1]
    for source in sources:
        db.execute(f"DROP TABLE {source.table}")
    return fixes + [source.fix(ordered) for source in sources if source.text]


def _origins(db: Connection, query: str, key: str, kind: str = "") -> tuple[Origins | None, Origins]:
    """Return the columns that feed the ids, None if that is unknown, and those whose order chooses.

    Values of types that don't match the pattern ``kind`` are left out.
    """
    with suppress(duckdb_module().Error, LookupError, TypeError, ValueError, RecursionError):
        names = [*column_types(db, f"({query})")]
        # A missing key is an error later.
        plan = json.loads(_called(db, "json_serialize_plan", query))["plans"][0]
        return origins_of(plan, names, key, kind) if key in names else (frozenset(), frozenset())
    return None, frozenset()


def _called(db: Connection, function: str, argument: str) -> str:
    [(result,)] = db.execute(f"SELECT {function}(?)", [argument]).fetchall()
    return str(result)


def _replace_sources(db: Connection, node: Any, sources: list[_Source]) -> None:
    """Replace each file and table function in a parsed query by an empty table, and add it to ``sources``."""
    for part in node.values() if isinstance(node, dict) else node:
        if isinstance(part, (dict, list)):
            _replace_sources(db, part, sources)
    if isinstance(node, dict) and node.get("type") in ("BASE_TABLE", "TABLE_FUNCTION"):
        _replace_source(db, node, sources)


def _replace_source(db: Connection, node: Json, sources: list[_Source]) -> None:
    tree = json.loads(_called(db, "json_serialize_sql", f"FROM pushsdk_{len(sources)}"))
    select = tree["statements"][0]["node"]
    table = select["from_table"]
    select["from_table"] = {**node, "alias": "", "sample": None, "column_name_alias": []}
    call = _called(db, "json_deserialize_sql", json.dumps(tree)).removeprefix("SELECT * FROM ")
    reader = _reader_of(db, f"FROM {call}")
    if reader is None:
        return  # a common table expression, or a function that reads another table's columns
    if "function" in node:
        alias = node["function"]["function_name"]
        if reader and not alias.startswith("read_"):
            return  # the file's name is in a text
    else:
        alias = node["table_name"].rpartition("/")[2].partition(".")[0]
        call = f"read_{reader.lower()}({literal(node['table_name'])})" if reader else call
    name, plain = table["table_name"], _plain_options(db, call) if reader == "CSV" else []
    source = f"FROM {_call_with(call, *plain)} LIMIT 0"
    db.execute(f"DROP VIEW IF EXISTS {name}; CREATE TEMP TABLE {name} AS {source}")
    sources.append(_Source(name, call, reader, plain, column_types(db, name)))
    table.update(alias=node["alias"] or alias, sample=node["sample"], column_name_alias=node["column_name_alias"])
    node.clear()
    node.update(table)


# Guesses lose users or change ids, as their signs may come late, or belong to an id. The first options that a file can
# be read with are added to a call.
_QUOTES = ("quote = '\"', escape = '\"'", "quote = '\"'", "quote = ''")
_COMMENTS = "comment = ''"
# As many rows as DuckDB looks at to guess.
_SAMPLE = "LIMIT 20480"


def _plain_options(db: Connection, call: str) -> list[str]:
    """Return options for double quotation marks or none, and for no comments.

    Raises ValidationError if DuckDB guesses others and finds other rows, as its signs may belong to the ids.
    """
    quotes = ("",) if re.search(r'\("(quote|escape)" =', call) else _QUOTES
    comments = "" if '("comment" =' in call else _COMMENTS
    for quote in quotes:
        options = [*filter(None, (quote, comments))]
        plain = _call_with(call, *options)
        with suppress(duckdb_module().Error):
            if db.execute(f"(FROM {call} {_SAMPLE}) EXCEPT (FROM {plain} {_SAMPLE}) LIMIT 1").fetchall():
                break
            return options
    db.execute(f"FROM {call} {_SAMPLE}").fetchall()  # raises if the file is no CSV
    text = "quotation marks or comments that DuckDB guesses may belong to ids: state quote = '\"' or quote = '''', and"
    raise ValidationError(f"the query: {text} comment = '#' or comment = '' in {printable(call)}")
