"""Entries as the emulator's service hands them to its store."""

import json
from typing import Any

from pushsdk.emulator.store.queries import InboxRef, Store
from pushsdk.emulator.store.records import Campaign, Preview, RequestContent, RequestRecord

__all__ = ["campaign", "duplicates", "push", "put", "refused", "users"]

MESSAGE = {"title": {"en": "Hello"}}


def push(box: InboxRef, *users: str, **fields: Any) -> RequestRecord:
    """An accepted push to these users."""
    body = json.dumps({"userIds": users, "message": MESSAGE}).encode()
    values = {"body": body, "time": 1.0, "status": 204, "accepted": True} | fields
    shown = {"users": len(users), "user_ids": users, "preview": Preview(languages=("en",)), "title": "hello"}
    shown |= {name: values.pop(name) for name in RequestContent.__struct_fields__ if name in values}
    return RequestRecord(inbox=box.id, endpoint="push", content=RequestContent(**shown), **values)


def refused(box: InboxRef, **fields: Any) -> RequestRecord:
    """A push that was not accepted."""
    return push(box, status=400, accepted=False, error="no", **fields)


def campaign(
    box: InboxRef, uuid: str, *, state: str = "waiting", start: float | None = None, **fields: Any
) -> RequestRecord:
    """An accepted campaign."""
    values = {"body": b'{"name": "Spring"}', "time": 1.0} | fields
    entry = Campaign(
        uuid=uuid, body=values["body"], time=values["time"], name="Spring", state=state, start=start, reading="now"
    )
    content = RequestContent(campaign=entry)
    return RequestRecord(inbox=box.id, endpoint="campaigns", status=200, accepted=True, content=content, **values)


def put(store: Store, *entries: RequestRecord) -> list[int]:
    """Store these together; their ids."""
    store.write(entries)
    return [entry.id for entry in entries]


def users(store: Store, box: InboxRef) -> dict[str, int]:
    """The number of accepted pushes of each user."""
    return {user.user_id: user.accepted for user in store.received(box)}


def duplicates(store: Store, box: InboxRef) -> dict[str, int]:
    """The users with an equal push accepted more than once, and the highest such count."""
    return {user.user_id: user.same for user in store.received(box, same=2)}
