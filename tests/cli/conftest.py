"""Fixtures: commands without the developer's settings, and a service to run them against."""

import functools
import json
import logging
import os

import pytest
from support.command_line import run_here


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch, tmp_path):
    for name in [name for name in os.environ if name.startswith("PUSHSDK_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "configuration"))
    monkeypatch.setenv("COLUMNS", "100")


@pytest.fixture(autouse=True)
def _logger_as_before():
    """Undo ``-v``, which is meant for the whole process."""
    logger = logging.getLogger("pushsdk")
    level = logger.level
    handlers = list(logger.handlers)
    yield
    logger.setLevel(level)
    logger.handlers[:] = handlers


@pytest.fixture
def command(capsys):
    """Return a function that runs a command line in this process and returns its code and output."""
    return functools.partial(run_here, capsys)


@pytest.fixture
def file(tmp_path):
    """Return a function that writes a text, or JSON, to a file."""

    def write(content):
        path = tmp_path / "file.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    return write
