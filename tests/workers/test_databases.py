"""The recipes for users from a database: the ids and names that it holds arrive."""

import asyncio
import contextlib
import sqlite3

import pytest
from support.docs import MODULES, module
from support.service_thread import served
from support.worker_frameworks import installed

from pushsdk import MobilePush, PushClient

USERS = [("00123", "Ann", "SE"), ("A0EE", "Bob", "SE"), ("7", "Eve", "NO")]
MESSAGE = MobilePush(title={"en": "Hi {{ first_name | 'you' }}"}, ios_enabled=True)
SWEDES = {"00123", "A0EE"}


@pytest.fixture
def service(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with served(monkeypatch) as service:
        yield service


@pytest.fixture
def database(tmp_path):
    path = tmp_path / "users.db"
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE users (user_id TEXT, first_name TEXT, country TEXT)")
        db.executemany("INSERT INTO users VALUES (?, ?, ?)", USERS)
        db.commit()
    return path


def pushed(service):
    """Return the title that each user got."""
    return {user: push.message["title"]["en"] for push in service.pushes for user in push.user_ids}


@pytest.mark.parametrize("name", ["sqlite_users", "sqlalchemy_users"])
def test_a_cursor_is_streamed(name, service, database):
    where = database
    if name == "sqlalchemy_users":
        installed("sqlalchemy", "databases")
        where = f"sqlite:///{database}"
    with PushClient() as client:
        report = module(name)["broadcast"](client, MESSAGE, where)
    assert report.accepted == 2
    assert {*pushed(service)} == SWEDES


@pytest.mark.parametrize("name", ["asyncpg_users.py", "psycopg_users.py"])
async def test_postgresql_leaves_out_who_opted_out(name, service, postgres_url, monkeypatch):
    import asyncpg

    installed(name.partition("_")[0], "databases")
    db = await asyncpg.connect(postgres_url)
    await db.execute("DROP TABLE IF EXISTS users, optouts; CREATE TABLE optouts AS SELECT 'out' AS user_id")
    await db.execute("CREATE TABLE users (user_id text)")
    await db.executemany("INSERT INTO users VALUES ($1)", [("out",), *((user,) for user in SWEDES)])
    await db.close()
    monkeypatch.setenv("DATABASE_URL", postgres_url)
    monkeypatch.setattr("sys.argv", [name, "sale.run"])
    await asyncio.to_thread(exec, MODULES[name], {"__name__": "__main__"})
    assert {*pushed(service)} == SWEDES


def test_another_run_leaves_out_the_users_of_earlier_ones(service):
    installed("psycopg", "databases")
    program = module("psycopg_users")
    for users, *runs in (["ann", "bob"], "sale.run"), (["bob", "eve"], "rest.run", "sale.run"):
        program["ids"] = users.__iter__
        program["main"](*runs)
    assert service.users() == {"ann": 1, "bob": 1, "eve": 1}


@pytest.mark.parametrize("name", ["polars_users", "pandas_users"])
def test_rows_fill_the_texts(name, service, database):
    installed(name.partition("_")[0], "databases")
    with PushClient() as client, contextlib.closing(sqlite3.connect(database)) as db:
        module(name)["send_each"](client, MESSAGE, db)
    assert pushed(service) == {"00123": "Hi Ann", "A0EE": "Hi Bob"}
