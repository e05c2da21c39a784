"""Entries as the emulator's service hands them to its store."""

import json

from pushsdk.emulator.store.records import RequestRecord, RequestSummary


def push(box, *users, title="hello", digest=0, **fields):
    """An accepted push to these users."""
    body = json.dumps({"userIds": users}).encode()
    content = {"user_ids": users, "title": title, "digest": digest}
    values = {"body": body, "time": 1.0, "status": 204, "accepted": True} | content | fields
    return RequestRecord(inbox=box.id, endpoint="push", **values)


def refused(box):
    """A push that was not accepted."""
    return push(box, status=400, accepted=False, error="no")


def campaign(box, uuid):
    """An accepted campaign."""
    return RequestRecord(
        inbox=box.id, endpoint="campaigns", status=200, accepted=True, campaign=uuid, body=b"{}", time=1.0
    )


def put(store, *entries):
    """Store these; their ids."""
    for entry in entries:
        store.write(entry)
    return [entry.id for entry in entries]


def users(store, box):
    """The number of accepted pushes of each user."""
    return {user.user_id: user.accepted for user in store.received(box)}


def duplicates(store, box):
    """The users with an equal push accepted more than once, and the highest such count."""
    return {user.user_id: user.same for user in store.received(box, same=2)}


def summary_of(**fields):
    """Return a line of the list of requests: by default of an accepted push to ann."""
    values = {"id": 7, "time": 1.5, "endpoint": "push", "status": 204, "accepted": True, "users": 1, "bytes": 10}
    unset = dict.fromkeys(["fault", "error", "campaign"])
    texts = {"first_user": "ann", "title": {"en": "Hi"}, "body": {}, "languages": (), "platforms": ()}
    return RequestSummary(**values | unset | texts | fields)
