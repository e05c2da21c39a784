"""Audiences, read whole."""

import pytest

from pushsdk import ValidationError


def made(folder, name, content):
    """A file of that content."""
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def ids_of(audience, *, distinct=False):
    """All ids."""
    return [user for batch in audience.ids(distinct=distinct) for user in batch]


def rows_of(audience, *, distinct=False):
    """All rows."""
    return [row for batch in audience.rows(distinct=distinct) for row in batch]


def refused(make):
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
