"""DuckDB, set up for reading local data in bounded memory, and its errors in our words. Imported only when used."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

from pushsdk._broadcast._source import plain
from pushsdk._core.errors import ConfigurationError, ValidationError

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

__all__ = ["Connection", "cause_of", "check_select", "connection", "duckdb_module", "explained"]

Connection: TypeAlias = "DuckDBPyConnection"

MEMORY = "150MB"
# More than two don't help: Python takes the results, and does that alone.
THREADS = 2

# What is asked for is what is installed, reachable and written down: no extension comes from elsewhere, none is loaded
# because a path looks like one for it, no secret of the user's home is read, and no variable of ours is a table.
_SETTINGS: dict[str, Any] = {
    "memory_limit": MEMORY,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "allow_community_extensions": False,
    "allow_persistent_secrets": False,
    "python_enable_replacements": False,
}

# Errors about the query and the files, not about a value in them: those that may be told in DuckDB's own words.
_TELLING = frozenset(
    {
        "BinderException",
        "CatalogException",
        "IOException",
        "ParserException",
        "PermissionException",
        "SyntaxException",
    }
)


def duckdb_module() -> ModuleType:
    """The module. Raises ConfigurationError where it is not installed."""
    try:
        import duckdb
    except ImportError:
        raise ConfigurationError(
            "Parquet files and queries are read by DuckDB, which is not installed: pip install 'pushsdk[audience]'"
        ) from None
    return duckdb


@contextmanager
def connection() -> Iterator[Connection]:
    """A database of its own, in memory; what does not fit goes to a private folder that is removed at the end."""
    duckdb = duckdb_module()
    with tempfile.TemporaryDirectory(prefix="pushsdk-") as folder:
        threads = max(1, min(THREADS, os.cpu_count() or 1))
        made = duckdb.connect(":memory:", config={**_SETTINGS, "threads": threads, "temp_directory": folder})
        try:
            made.execute("SET enable_progress_bar = false; SET lock_configuration = true")
            yield made
        finally:
            made.close()


@contextmanager
def explained(name: str, *, unfit: str = "") -> Iterator[None]:
    """What DuckDB says becomes a ValidationError; of an error that may quote a value only the kind, or ``unfit``."""
    duckdb = duckdb_module()
    try:
        yield
    except duckdb.Error as error:
        kind = type(error).__name__
        if kind == "OutOfMemoryException":
            raise ValidationError(f"{plain(name)}: DuckDB needs more than the {MEMORY} it may use") from None
        if kind in _TELLING:
            words = str(error).partition("\n")[0]
            raise ValidationError(f"{plain(name)}: {plain(words)}") from None
        words = unfit or f"DuckDB stopped with {kind}; its words are left out, as they may quote the data"
        raise ValidationError(f"{plain(name)}: {words}") from None


def cause_of(error: Exception) -> str:
    """Return the name of DuckDB's own error if ``explained`` raised this one, else an empty text."""
    return type(error.__context__).__name__ if isinstance(error.__context__, duckdb_module().Error) else ""


def check_select(made: Connection, sql: str) -> None:
    """Raises ValidationError for what is not one SELECT: a query reads, and nothing else."""
    try:
        kinds = [each.type.name for each in made.extract_statements(sql)]
    except ValueError:  # a kind that DuckDB has, and its Python package has no name for
        kinds = []
    if kinds != ["SELECT"]:
        raise ValidationError("the query is not one SELECT statement")
