"""The store: bounded lists, resets, and one snapshot for each read. Its counts are in the model test."""

import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.store_entries import campaign, push, put, users

from pushsdk._sqlite import connect
from pushsdk.emulator.store import database
from pushsdk.emulator.store.queries import Store


@pytest.fixture
def make(tmp_path):
    """``make(**options)`` opens the store's file, which is closed in the end."""
    stores = []

    def open_(**options):
        stores.append(Store(tmp_path / "kept", **options))
        return stores[-1]

    yield open_
    for store in stores:
        store.close()


@pytest.fixture
def store(make):
    return make()


@pytest.fixture
def box(store):
    return store.inbox("key")


def ids(store, box):
    return [request.id for request in reversed(store.requests(box))]


# Bounds


def test_the_largest_inbox_is_trimmed_first(make):
    store = make(max_bytes=1000)
    small = store.inbox("small")
    large = store.inbox("large")
    put(store, *(push(small, "ann", body=b"s" * 100) for _ in range(3)))
    entries = put(store, *(push(large, "bob", body=b"l" * 100) for _ in range(7)))
    assert len(ids(store, large)) == 7
    put(store, push(small, "ann", body=b"s" * 100))
    assert ids(store, large) == entries[2:]  # a hundredth more than necessary
    assert len(ids(store, small)) == 4
    put(store, push(small, "ann", body=b"s" * 2000))
    assert ids(store, small) == []
    assert len(ids(store, large)) == 5
    assert store.totals()["users"] == 2


def test_a_page_reads_its_users_only(store, box, monkeypatch):
    def counted(*arguments, **options):
        db = connect(*arguments, **options)
        db.set_progress_handler(lambda: steps.append("a thousand"), 1000)
        return db

    put(store, push(box, "", *(f"u{number}" for number in range(5000))))
    steps = []
    monkeypatch.setattr(database, "connect", counted)
    page = store.received(box, after="u100", limit=2)
    assert [user.user_id for user in page] == ["u101", "u102"]
    assert len(steps) < 5
    assert len(store.received(box)) == 5001


# Resets


@pytest.mark.parametrize("way", ["reset", "delete", "evict"])
def test_what_is_dropped_leaves_no_rows(make, tmp_path, way):
    store = make(keep=2)
    box = store.inbox("key")
    other = store.inbox("other")
    put(store, push(box, "ann"), campaign(box, "c1"), push(other, "ann"))
    if way == "evict":
        put(store, push(box, "ann"), push(box, "ann"))
    else:
        store.reset(box) if way == "reset" else store.delete(box)
    db = sqlite3.connect(tmp_path / "kept")
    tables = ("inboxes", "received", "requests")
    counts = [db.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables]
    db.close()
    assert counts == [2, *{"reset": (1, 1), "delete": (2, 1), "evict": (4, 3)}[way]]
    assert users(store, other) == {"ann": 1}


# Threads


def test_each_read_is_one_snapshot_while_others_write_and_reset(store, box):
    done = threading.Event()

    def look():
        while not done.is_set():
            accepted, pushes = store.delivered(store.find("key"), "ann", size=0)
            if accepted != sum(push.times for push in pushes):
                return accepted
        return None

    with ThreadPoolExecutor() as pool:
        looks = [pool.submit(look) for _ in range(3)]
        for number in range(200):
            put(store, push(box, "ann", "bob"), push(box, "ann", "ann"))
            if number % 20 == 19:
                box = store.reset(box)
        done.set()
    assert [look.result() for look in looks] == [None] * 3
    assert users(store, box) == {}


def test_the_first_use_by_several_threads_opens_one_file_with_one_inbox(tmp_path):
    with ThreadPoolExecutor(4) as pool:
        for number in range(10):
            store = Store(tmp_path / f"{number}")
            store.close()  # has no effect before the first use
            assert not (tmp_path / f"{number}").exists()
            assert set(pool.map(store.inbox, ["key"] * 4)) == {store.find("key")}
            assert len(store.inboxes()) == 1
            store.close()
