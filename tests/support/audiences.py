"""Audiences, read whole."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pushsdk import ValidationError
from pushsdk._audience.audience import Audience

__all__ = ["ids_of", "made", "refused", "rows_of"]


def made(folder: Path, name: str, content: bytes | str) -> Path:
    """A file of that content."""
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def ids_of(audience: Audience, *, distinct: bool = False) -> list[str]:
    """All ids."""
    return [user for batch in audience.ids(distinct=distinct) for user in batch]


def rows_of(audience: Audience, *, distinct: bool = False) -> list[tuple[str, dict[str, Any]]]:
    """All rows."""
    return [row for batch in audience.rows(distinct=distinct) for row in batch]


def refused(make: Callable[[], Audience]) -> str:
    """Return the error of all ways to make and read an audience."""
    errors = set()
    for read in (ids_of, rows_of):
        for distinct in (False, True):
            with pytest.raises(ValidationError) as excinfo:
                read(make(), distinct=distinct)
            error = excinfo.value
            assert type(error) is ValidationError  # a name that a caller can import
            assert error.__cause__ is None
            assert error.__suppress_context__ or error.__context__ is None
            errors.add(str(error))
    assert len(errors) == 1
    return errors.pop()
