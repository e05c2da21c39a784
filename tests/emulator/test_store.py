"""The store: exact permanent counts, a bounded list, immediate resets."""

import sqlite3
import threading
from contextlib import contextmanager

import pytest
from support.store_entries import campaign, push, put, refused, users

from pushsdk.emulator.store.database import StoreError
from pushsdk.emulator.store.queries import ALL_INBOXES, NO_INBOX, Store
from pushsdk.emulator.store.search import parse


@pytest.fixture
def make(tmp_path):
    """``make(**options)`` closes the last store and opens its file again."""
    stores: list[Store] = []

    def open_(**options):
        for store in stores:
            store.close()
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


def ids(store, box, search=""):
    return [request.id for request in store.requests(box, parse(search), forward=True, limit=-1)]


def rows(tmp_path, table):
    db = sqlite3.connect(tmp_path / "kept")
    (count,) = db.execute(f"SELECT count(*) FROM {table}").fetchone()
    db.close()
    return count


# Counts


def test_an_unknown_inbox_is_empty(store):
    assert store.find("unknown") is NO_INBOX
    assert (users(store, NO_INBOX), store.pushes(NO_INBOX), store.requests(NO_INBOX)) == ({}, (), [])
    assert store.inboxes() == []


# Lists


def test_a_users_newest_pushes_are_returned_oldest_first(store, box):
    numbers = put(store, *(push(box, "ann", "ann", time=float(number)) for number in range(5)), campaign(box, "c1"))
    store.deliver(store.campaign(box, "c1"), [("ann", {"name": "Ann"})])
    accepted, pushes = store.delivered(box, "ann", limit=3)
    assert accepted == 10
    assert [(push.id, push.times) for push in pushes] == [(number, 2) for number in numbers[2:5]]
    _, pushes = store.delivered(box, "ann")
    assert [(push.id, push.campaign, push.fields) for push in pushes if push.campaign] == [
        (numbers[5], "c1", {"name": "Ann"})
    ]


# Deleting


# Bounds


def test_zero_requests_can_be_kept(make):
    store = make(keep=0)
    box = store.inbox("key")
    assert put(store, push(box, "ann")) == [1]
    assert (store.pushes(box), users(store, box)) == ((), {"ann": 1})


def test_the_largest_inbox_is_trimmed_first(make):
    store = make(max_bytes=1000)
    small, large = store.inbox("small"), store.inbox("large")
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


def test_all_bounds_at_once_agree_with_the_counts(make):
    store = make(keep=3, max_bytes=500, max_age=5.0)
    boxes = [store.inbox(key) for key in "ab"]
    for number in range(60):
        put(store, *(push(box, "ann", time=float(number), body=b"x" * (number * 7 % 90)) for box in boxes))
        listed = [store.requests(box) for box in boxes]
        counts = {inbox.inbox: inbox.requests for inbox in store.inboxes()}
        assert [counts[box.name] for box in boxes] == [len(requests) for requests in listed]
        size = sum(request.bytes for requests in listed for request in requests)
        assert size <= 500
        assert all(len(requests) <= 3 for requests in listed)


# Reset


def test_the_inbox_of_before_a_reset_is_empty(store, box):
    put(store, push(box, "ann"), campaign(box, "c1"))
    store.reset(box)
    assert (users(store, box), store.pushes(box), store.campaigns(box), store.campaign(box, "c1")) == ({}, (), (), None)
    assert (store.accepted(box, "ann"), store.requests(box), store.delete(box)) == (0, [], 0)
    assert store.unfinished() == []


def test_a_request_in_flight_during_a_reset_is_not_stored(store, box, tmp_path):
    new = store.reset(box)
    assert put(store, push(box, "ann"), push(new, "bob")) == [0, 1]
    assert users(store, new) == {"bob": 1}
    assert (rows(tmp_path, "requests"), rows(tmp_path, "received")) == (1, 1)


def test_a_second_reset_with_the_inbox_of_before_the_first_does_nothing(store, box):
    new = store.reset(box)
    put(store, push(new, "ann"))
    assert store.reset(box) == new
    assert users(store, new) == {"ann": 1}


def test_a_failed_reset_changes_nothing(store, box, monkeypatch):
    writing = store.open().writing

    @contextmanager
    def failing():
        with writing() as db:
            yield db
            raise StoreError("the disk is full")

    put(store, push(box, "ann"))
    monkeypatch.setattr(store.open(), "writing", failing)
    with pytest.raises(StoreError, match="full"):
        store.reset(box)
    monkeypatch.undo()
    put(store, push(store.inbox("key"), "ann"))
    assert (store.find("key"), users(store, box), len(store.pushes(box))) == (box, {"ann": 2}, 2)


def test_a_reset_deletes_all_of_its_inbox_and_nothing_else(store, box, tmp_path):
    other = store.inbox("other")
    put(store, push(box, "ann"), campaign(box, "c1"), push(other, "ann"))
    store.deliver(store.campaign(box, "c1"), [("ann", {})])
    store.reset(box)
    tables = ("inboxes", "requests", "received", "campaigns", "recipients")
    assert [rows(tmp_path, table) for table in tables] == [2, 1, 1, 0, 0]
    assert users(store, other) == {"ann": 1}


@pytest.mark.parametrize("removal", ["deleted", "reset"])
def test_a_deleted_campaign_gets_no_recipients(store, box, removal, tmp_path):
    put(store, campaign(box, "c1"))
    entry = store.campaign(box, "c1")
    store.deliver(entry, [("ann", {})])
    store.delete(box) if removal == "deleted" else store.reset(box)
    assert store.deliver(entry, [("bob", {})]) is False
    assert rows(tmp_path, "recipients") == 0


# Campaigns


def test_an_evicted_campaign_loses_its_recipients(make, tmp_path):
    store = make(keep=1)
    box = store.inbox("key")
    put(store, campaign(box, "c1"))
    store.deliver(store.campaign(box, "c1"), [("ann", {})])
    put(store, push(box, "bob"))
    assert (store.campaigns(box), rows(tmp_path, "recipients")) == ((), 0)


# Reopened files


def test_a_reopened_file_is_complete(make):
    store = make()
    box = store.inbox("key")
    store.label(box, "mine")
    put(store, push(box, "ann", "bob"), push(box, "ann", "eve"), campaign(box, "c1", start=5.0))
    store.deliver(store.campaign(box, "c1"), [("ann", {})])
    store = make(keep=4)
    assert store.find("key") == box
    assert users(store, box) == {"ann": 2, "bob": 1, "eve": 1}
    assert [push.user_ids for push in store.pushes(box)] == [("ann", "bob"), ("ann", "eve")]
    assert (store.unfinished()[0][1], store.inboxes()[0].label) == ("c1", "mine")
    assert put(store, push(box, "ann"), push(box, "ann")) == [4, 5]
    assert (ids(store, box), store.accepted(box, "ann")) == ([2, 3, 4, 5], 4)
    assert store.totals() == {"users": 3, "duplicates": 1, "pushes": 3, "campaigns": 1}


def test_ids_are_never_reused_even_after_a_reset(make):
    store = make()
    box = store.inbox("key")
    put(store, push(box, "ann"), push(box, "ann"))
    store.reset(box)
    store = make()
    assert put(store, push(store.inbox("key"), "ann")) == [3]


def test_check_leaves_no_trace(make):
    store = make()
    store.inbox("key")
    store.write(())
    store.close()
    with pytest.raises(StoreError, match="can only be read"):
        store.write(())


def test_an_unused_store_creates_no_file(make, tmp_path):
    make().close()
    assert list(tmp_path.iterdir()) == []


# Threads


def test_counts_and_list_are_one_snapshot(store, box):
    done, wrong, looks = threading.Event(), [], []

    def look():
        while not done.is_set() or not looks:
            accepted, pushes = store.delivered(box, "ann")
            looks.append(accepted)
            if accepted != sum(push.times for push in pushes):
                wrong.append((accepted, len(pushes)))

    threads = [threading.Thread(target=look) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(200):
        put(store, push(box, "ann", "bob"), push(box, "ann", "ann"))
    done.set()
    for thread in threads:
        thread.join()
    assert (wrong, store.accepted(box, "ann")) == ([], 600)


def test_a_reader_sees_an_inbox_whole_or_empty_while_it_is_reset(store):
    done, sizes = threading.Event(), set()

    def look():
        while not done.is_set():
            sizes.add(len(users(store, store.find("key"))))

    store.inbox("key")
    thread = threading.Thread(target=look)
    thread.start()
    for _ in range(40):
        put(store, push(store.inbox("key"), *"abcde"))
        store.reset(store.inbox("key"))
    done.set()
    thread.join()
    assert sizes <= {0, 5}


def test_two_threads_get_the_same_new_inbox(store):
    for key in range(30):
        boxes, barrier = [], threading.Barrier(4)

        def ask(key=f"key {key}", boxes=boxes, barrier=barrier):
            barrier.wait()
            boxes.append(store.inbox(key))

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(set(boxes)) == 1
    assert len(store.inboxes()) == 30


def test_the_first_use_by_several_threads_opens_it_once():
    for _ in range(5):
        store, errors = Store(), []
        barrier = threading.Barrier(4)

        def use(store=store, errors=errors, barrier=barrier):
            barrier.wait()
            try:
                store.inbox("key")
            except StoreError as error:
                errors.append(error)

        threads = [threading.Thread(target=use) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        assert len(store.inboxes()) == 1


# Groups


def grouped(store, box, **bounds):
    """Each group as (newest id, oldest id, requests, users reached, failed)."""
    rows = store.requests(box, grouped=True, **bounds)
    return [(row.id, row.group, row.requests, row.reached, row.failed) for row in rows]


def test_consecutive_pushes_with_the_same_texts_are_a_group(store, box):
    put(
        store,
        push(box, "ann"),
        push(box, "bob", "cem"),
        refused(box),
        push(box, "ann", title="other"),
        push(box, "ann"),
    )
    assert grouped(store, box) == [(5, 5, 1, 1, 0), (4, 4, 1, 1, 0), (3, 1, 3, 3, 1)]
    assert grouped(store, box, before=4, limit=1) == [(3, 1, 3, 3, 1)]
    assert ids(store, box, "group:1") == [1, 2, 3]


def test_a_push_without_a_response_counts_as_failed_in_its_group(store, box):
    put(store, push(box, "ann"), push(box, "bob", status=None))
    assert grouped(store, box) == [(2, 1, 2, 2, 1)]


def test_requests_without_texts_and_campaigns_are_no_group(store, box):
    put(store, push(box, "ann", title=""), push(box, "ann", title=""), campaign(box, "u-1"), campaign(box, "u-2"))
    assert [row[2] for row in grouped(store, box)] == [1, 1, 1, 1]


def test_pushes_of_another_inbox_do_not_divide_a_group(store, box):
    other = store.inbox("other")
    put(store, push(box, "ann"), push(other, "ann", title="other"), push(box, "bob"), push(other, "bob"))
    assert grouped(store, ALL_INBOXES) == [(4, 4, 1, 1, 0), (2, 2, 1, 1, 0), (3, 1, 2, 2, 0)]


def test_a_group_outlives_its_oldest_push(store, box):
    put(store, push(box, "ann"), push(box, "bob"))
    store.delete(box, only=1)
    put(store, push(box, "cem"))
    assert grouped(store, box) == [(3, 1, 2, 2, 0)]
