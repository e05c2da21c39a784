"""Entries as the emulator's service hands them to its store."""

from __future__ import annotations

import json
from typing import Any

from pushsdk.emulator.store.queries import InboxRef, Store
from pushsdk.emulator.store.records import Campaign, Preview, RequestRecord

__all__ = ["campaign", "push", "put", "refused"]

MESSAGE = {"title": {"en": "Hello"}}


def push(box: InboxRef, *users: str, **fields: Any) -> RequestRecord:
    """An accepted push to these users."""
    body = json.dumps({"userIds": users, "message": MESSAGE}).encode()
    given = {"body": body, "time": 1.0, "status": 204, "accepted": True, "title": "hello"} | fields
    return RequestRecord(
        inbox=box.id, endpoint="push", users=len(users), user_ids=users, preview=Preview(languages=("en",)), **given
    )


def refused(box: InboxRef, **fields: Any) -> RequestRecord:
    """A push that was not accepted."""
    return push(box, status=400, accepted=False, error="no", **fields)


def campaign(box: InboxRef, uuid: str, *, state: str = "waiting", **fields: Any) -> RequestRecord:
    """An accepted campaign."""
    given = {"body": b'{"name": "Spring"}', "time": 1.0} | fields
    made = Campaign(uuid=uuid, body=given["body"], time=given["time"], name="Spring", state=state, reading="now")
    return RequestRecord(inbox=box.id, endpoint="campaigns", status=200, accepted=True, campaign=made, **given)


def put(store: Store, *entries: RequestRecord) -> list[int]:
    """Store these together; their ids."""
    store.write(entries)
    return [entry.id for entry in entries]
