"""The statements that change the store, each a function over the connection that writes. See ``sql`` for the others."""

from __future__ import annotations

import secrets
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import NamedTuple

import msgspec

from pushsdk.emulator.records import Campaign, Entry

__all__ = [
    "Size",
    "add_inbox",
    "add_part",
    "add_recipients",
    "begin_anew",
    "delete",
    "drop_recipients",
    "index",
    "insert",
    "older",
    "oldest",
    "set_label",
    "sizes",
    "sweep",
    "unswept",
    "update_campaign",
]

_encode = msgspec.json.Encoder().encode


class Size(NamedTuple):
    """What dropping a request gives back, and to which inbox."""

    id: int
    inbox: int
    bytes: int


# Inboxes


def add_inbox(db: sqlite3.Connection, digest: bytes) -> None:
    """Make an inbox, with a name that says nothing of its key and a label that tells it from the others."""
    db.execute(
        "INSERT INTO inboxes(digest, name, label)"
        " SELECT ?, ?, 'Inbox ' || (count(*) + 1) FROM inboxes WHERE digest NOT NULL",
        (digest, _name()),
    )


def set_label(db: sqlite3.Connection, inbox: int, label: str) -> None:
    """Name an inbox."""
    db.execute("UPDATE inboxes SET label = ? WHERE id = ?", (label, inbox))


def begin_anew(db: sqlite3.Connection, inbox: int) -> int | None:
    """Put an empty inbox in the place of this one, which is left to ``sweep``; its id, None where that was done."""
    old = db.execute("SELECT digest, name, label FROM inboxes WHERE id = ? AND digest NOT NULL", (inbox,)).fetchone()
    if old is None:
        return None
    db.execute("UPDATE inboxes SET digest = NULL, name = ? WHERE id = ?", (_name(), inbox))
    return db.execute("INSERT INTO inboxes(digest, name, label) VALUES (?, ?, ?)", old).lastrowid


def _name() -> str:
    return secrets.token_hex(8)


# Requests


def insert(db: sqlite3.Connection, entry: Entry) -> int:
    """Store a request, and its campaign where it is one; its id."""
    cursor = db.execute(
        "INSERT INTO requests(inbox, time, endpoint, status, accepted, fault, error, users, bytes, card, title, text,"
        " langs, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            *(entry.inbox, entry.time, entry.endpoint, entry.status, entry.accepted, entry.fault, entry.error),
            *(entry.users, len(entry.body), _encode(entry.card), entry.title, entry.text),
            *(f" {' '.join(entry.card.languages)} ".casefold(), entry.body),
        ),
    )
    if entry.campaign is not None:
        each = entry.campaign
        db.execute(
            "INSERT INTO campaigns(uuid, inbox, request, name, external_id, state, start, reading, error)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                *(each.uuid, entry.inbox, cursor.lastrowid, each.name, each.external_id),
                *(each.state, each.start, each.reading, each.error),
            ),
        )
    return int(cursor.lastrowid or 0)


def add_part(db: sqlite3.Connection, part: int) -> None:
    """Begin a part of the index."""
    db.execute("INSERT INTO parts VALUES (?)", (part,))


def index(db: sqlite3.Connection, part: int, entry: Entry) -> int:
    """Count an accepted push for its users, in this part; the rows it takes."""
    times = Counter(entry.user_ids)
    rows = [(part, entry.inbox, user, entry.id, entry.digest, number) for user, number in times.items()]
    db.executemany("INSERT INTO received VALUES (?, ?, ?, ?, ?, ?)", rows)
    return len(rows)


def older(db: sqlite3.Connection, time: float) -> Iterator[Size]:
    """The requests from before this time."""
    rows = db.execute("SELECT id, inbox, bytes, time FROM requests ORDER BY id")
    for *size, _ in takewhile(lambda row: row[3] < time, rows):
        yield Size(*size)


def oldest(db: sqlite3.Connection, inbox: int, *, count: int = -1, size: float = float("inf")) -> Iterator[Size]:
    """The oldest requests of an inbox: at most so many, and as few as have this many bytes."""
    rows = db.execute("SELECT id, inbox, bytes FROM requests WHERE inbox = ? ORDER BY id LIMIT ?", (inbox, count))
    taken = 0
    for row in rows:
        if taken >= size:
            return
        taken += row[2]
        yield Size(*row)


def sizes(db: sqlite3.Connection, ids: Iterable[int]) -> Iterator[Size]:
    """Those of these requests that are still there."""
    for number in ids:
        row = db.execute("SELECT id, inbox, bytes FROM requests WHERE id = ?", (number,)).fetchone()
        if row is not None:
            yield Size(*row)


def delete(db: sqlite3.Connection, gone: Sequence[Size]) -> bool:
    """Drop requests with their campaigns. The counts per user stay. Whether there is something to sweep after it."""
    keys = [(size.id,) for size in gone]
    before = db.total_changes
    db.executemany("INSERT INTO ended SELECT request FROM campaigns WHERE request = ?", keys)
    ended = db.total_changes > before
    if ended:
        db.executemany("DELETE FROM campaigns WHERE request = ?", keys)
    db.executemany("DELETE FROM requests WHERE id = ?", keys)
    return ended


# What is left of what is gone


def unswept(db: sqlite3.Connection) -> bool:
    """Whether there is something to sweep."""
    (found,) = db.execute(
        "SELECT EXISTS (SELECT 1 FROM inboxes WHERE digest IS NULL) OR EXISTS (SELECT 1 FROM ended)"
    ).fetchone()
    return bool(found)


def sweep(db: sqlite3.Connection, rows: int) -> None:
    """Drop up to this many rows of each kind, of an inbox that was begun anew or of a campaign that is gone."""
    inbox = db.execute("SELECT id FROM inboxes WHERE digest IS NULL ORDER BY id LIMIT 1").fetchone()
    if inbox is not None:
        _sweep_inbox(db, inbox[0], rows)
    campaign = db.execute("SELECT request FROM ended LIMIT 1").fetchone()
    if campaign is not None and drop_recipients(db, campaign[0], rows) < rows:
        db.execute("DELETE FROM ended WHERE request = ?", campaign)


def _sweep_inbox(db: sqlite3.Connection, inbox: int, rows: int) -> None:
    gone = list(oldest(db, inbox, count=rows))
    delete(db, gone)
    keys = db.execute(
        "SELECT part, inbox, user, request FROM parts CROSS JOIN received USING (part) WHERE inbox = ? LIMIT ?",
        (inbox, rows),
    ).fetchall()
    db.executemany("DELETE FROM received WHERE part = ? AND inbox = ? AND user = ? AND request = ?", keys)
    if not gone and not keys:
        db.execute("DELETE FROM inboxes WHERE id = ?", (inbox,))
        # Every look-up seeks in each part; the last one grows.
        db.execute(
            "DELETE FROM parts WHERE part < (SELECT max(part) FROM parts)"
            " AND NOT EXISTS (SELECT 1 FROM received WHERE received.part = parts.part)"
        )


# Campaigns


def update_campaign(db: sqlite3.Connection, campaign: Campaign) -> None:
    """Store what became of a campaign, if it is still there."""
    db.execute(
        "UPDATE campaigns SET state = ?, start = ?, reading = ?, started = ?, finished = ?, users = ?, error = ?"
        " WHERE uuid = ?",
        (
            *(campaign.state, campaign.start, campaign.reading, campaign.started, campaign.finished),
            *(campaign.users, campaign.error, campaign.uuid),
        ),
    )


def add_recipients(db: sqlite3.Connection, request: int, batch: Iterable[tuple[str, Mapping[str, object]]]) -> bool:
    """Store who gets a campaign, with the row that fills the placeholders; False where the campaign is gone."""
    there = db.execute(
        "SELECT 1 FROM campaigns JOIN inboxes ON inboxes.id = inbox AND digest NOT NULL WHERE request = ?", (request,)
    ).fetchone()
    if there is None:
        return False
    rows = [(request, user, _encode(fields)) for user, fields in batch]
    db.executemany("INSERT INTO recipients VALUES (?, ?, ?)", rows)
    return True


def drop_recipients(db: sqlite3.Connection, request: int, rows: int) -> int:
    """Drop up to this many recipients of a campaign; how many there were."""
    return db.execute(
        "DELETE FROM recipients WHERE request = ? AND user IN (SELECT user FROM recipients WHERE request = ? LIMIT ?)",
        (request, request, rows),
    ).rowcount
