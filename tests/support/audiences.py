"""Audiences, read whole."""

from itertools import chain

import pytest

from pushsdk import ValidationError


def made(folder, name, content):
    """A file of that content."""
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def ids_of(audience, *, distinct=False):
    """All ids."""
    return [*chain(*audience.ids(distinct=distinct))]


def rows_of(audience, *, distinct=False):
    """All rows."""
    return [*chain(*audience.rows(distinct=distinct))]


def refused(make):
    """Return the one error of making an audience, or of the ways to read it."""
    errors = set()
    audience = None
    for read, distinct in ((ids_of, False), (ids_of, True), (rows_of, True)):
        with pytest.raises(ValidationError) as excinfo:
            audience = audience or make()
            read(audience, distinct=distinct)
        error = excinfo.value
        assert type(error) is ValidationError  # a name that a caller can import
        assert error.__cause__ is None
        assert error.__suppress_context__ or error.__context__ is None
        errors.add(str(error))
        if not audience:
            break
    [error] = errors
    return error
