"""Audiences from a table in memory, whatever library made it: DuckDB reads its Arrow stream."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pushsdk._audience.duckdb_reader import VIEW, Connection, DuckdbSource, connection, duckdb_errors, row_count
from pushsdk._core.errors import ConfigurationError, PushError, ValidationError


class ArrowTable(DuckdbSource):
    """The rows in a table that has ``__arrow_c_stream__``."""

    def __init__(self, table: Any, *, key: str) -> None:
        self._table = table
        # The rows at the first reading. Set by _opened.
        self._rows: int | None = None
        super().__init__(f"the {type(table).__name__}", key)

    def description(self) -> str:
        return f"a {type(self._table).__name__} in memory"

    @contextmanager
    def _opened(self) -> Iterator[Connection]:
        stream = _Stream(self._table, self._name)
        with connection() as db, duckdb_errors(self._name):
            try:
                db.register("pushsdk_stream", stream)
                # Some DuckDB versions can read a stream only once.
                db.execute(f"CREATE TEMP TABLE {VIEW} AS FROM pushsdk_stream")
            finally:
                if stream.error is not None:
                    raise stream.error from None
            rows = row_count(db)
            if self._rows not in (None, rows):
                raise ValidationError(
                    f"{self._name} had {self._rows} rows, and now has {rows}: pass a table that stays as it is, not a "
                    "reader that can be read only once"
                )
            self._rows = rows
            yield db


class _Stream:
    """Nothing but the table's stream: DuckDB would read a known table with pyarrow."""

    def __init__(self, table: Any, name: str) -> None:
        self._table = table
        self._name = name
        # Set by __arrow_c_stream__. It quotes no value.
        self.error: PushError | None = None

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        try:
            return self._table.__arrow_c_stream__(requested_schema)
        except ImportError:
            self.error = ConfigurationError(f"{self._name} needs pyarrow for its Arrow stream: pip install pyarrow")
            raise
        except Exception as error:
            kind = type(error).__name__
            fix = "is it read only once, or are a column's values of several types?"
            self.error = ValidationError(f"{self._name}: its Arrow stream fails with {kind}: {fix}")
            raise
