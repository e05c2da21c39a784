"""A file of this package: opened by several processes at the same time, and while another program is in it."""

import multiprocessing
import sqlite3
from pathlib import Path

import pytest

from pushsdk import _sqlite
from pushsdk._sqlite import FileFormat, FileRefused, _log_ahead, open_database

FORMAT = FileFormat(name="shelf", application_id=7, version=1, schema="CREATE TABLE IF NOT EXISTS books(title);")


def _open_new_ones(folder):
    for number in range(40):
        open_database(Path(folder) / f"{number}", FORMAT, timeout=20.0).close()


def test_processes_may_make_the_same_file_at_the_same_time(tmp_path):
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        pool.map(_open_new_ones, [str(tmp_path)] * 3, chunksize=1)


def test_a_file_whose_first_pages_are_being_written_is_looked_at_again(tmp_path, monkeypatch):
    path = tmp_path / "shelf"
    real = _sqlite.connect
    open_database(path, FORMAT, timeout=1.0).close()
    whole = path.read_bytes()

    def connect(path, *, timeout, options="mode=rw"):
        # A reader without a lock sees only the first page.
        path.write_bytes(whole[:4096] if "immutable" in options else whole)
        return real(path, timeout=timeout, options=options)

    monkeypatch.setattr(_sqlite, "connect", connect)
    open_database(path, FORMAT, timeout=1.0).close()
    assert path.read_bytes() == whole


def test_a_file_that_lost_pages_is_refused(tmp_path):
    path = tmp_path / "shelf"
    open_database(path, FORMAT, timeout=1.0).close()
    path.write_bytes(path.read_bytes()[:4096])
    with pytest.raises(FileRefused, match="it is no shelf, or it is damaged"):
        open_database(path, FORMAT, timeout=1.0)


class Db:
    """Answers every statement by this, or raises it."""

    def __init__(self, answer):
        self.answer = answer

    def execute(self, sql):
        return self

    def fetchone(self):
        if isinstance(self.answer, Exception):
            raise self.answer
        return (self.answer,)


def test_a_change_to_a_log_that_is_refused_is_an_error():
    busy = sqlite3.OperationalError("busy")
    full = sqlite3.OperationalError("full")
    busy.sqlite_errorcode = sqlite3.SQLITE_BUSY
    full.sqlite_errorcode = sqlite3.SQLITE_FULL
    for answer in (busy, full):
        with pytest.raises(sqlite3.OperationalError, match=str(answer)):
            _log_ahead(Db(answer), 0.01)
    with pytest.raises(FileRefused, match="no write-ahead log, only delete"):
        _log_ahead(Db("delete"), 0.01)
