"""``pushsdk send`` and ``pushsdk campaign create``: one call each."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cyclopts import Parameter

from pushsdk import AsyncPushClient, CampaignCreated, Outcome, PartialError, PushError, Receipt
from pushsdk._core.words import count
from pushsdk.cli.exit import Exit, usage
from pushsdk.cli.files import advise, read_campaign, read_fields, read_message
from pushsdk.cli.options import File, Flag, Pace, Patience, Service, confirm, settings_of
from pushsdk.cli.terminal import print_json, say, warn

__all__ = ["create", "send"]

_NO_FILE = (
    "send takes user ids, not a file; to read ids from a file: pushsdk broadcast ids.txt --message FILE --run FILE; "
    "an id that begins with @ is written with one more, as @@ann"
)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Content:
    """What is sent: a file, or two texts."""

    message: File | None = None
    """A JSON file that holds the message; - is standard input."""
    title: str | None = None
    """The title of a message to iOS and Android, instead of a file."""
    body: str | None = None
    """The text of that message."""
    lang: str = "en"
    """The language of title and body."""
    custom_fields: str | None = None
    """A JSON object that goes with it, or @FILE."""

    def read(self) -> tuple[Mapping[str, Any], Mapping[str, Any] | None]:
        """The message and the custom fields. Raises a usage error."""
        texts = {"title": self.title, "body": self.body}
        given = {name: {self.lang: text} for name, text in texts.items() if text is not None}
        if (self.message is None) is not bool(given):
            raise usage("give the message either by --message FILE, or by --title and --body")
        fields = None if self.custom_fields is None else read_fields("--custom-fields", self.custom_fields)
        if self.message is not None:
            return read_message(self.message), fields
        return {"type": "MOBILE_PUSH", "iosEnabled": True, "androidEnabled": True, **given}, fields


def send(
    *users: str,
    content: Content | None = None,
    yes: Flag = False,
    json: Flag = False,
    service: Service | None = None,
    patience: Patience | None = None,
    pace: Pace | None = None,
) -> int:
    """Push a message to some users, and say what happened.

    Parameters
    ----------
    users
        Their ids, 1000 at most: for more, or for a file of ids, there is broadcast. After -- an id may begin with a
        dash. An id that begins with @ is written with one more: @@ann.
    yes
        Do not ask before sending to another machine.
    json
        Print the result as one JSON object.
    """
    if not users:
        raise usage("name at least one user")
    if any(user.startswith("@") and not user.startswith("@@") for user in users):
        raise usage(_NO_FILE)
    users = tuple(user[1:] if user.startswith("@@") else user for user in users)
    message, fields = (content or Content()).read()
    settings = settings_of(service, patience, pace)
    advise(message)
    confirm(f"Push to {count(len(set(users)))} at {settings['base_url']}?", settings, yes=yes)
    client = AsyncPushClient(**settings)
    try:
        receipt = asyncio.run(_send(client, users, message, fields))
    except PushError as error:
        if json and error.attempts:
            print_json(_failure(error))
        raise
    if json:
        print_json(_success(receipt))
    else:
        requests = f" in {count(receipt.requests, 'request')}" if receipt.requests > 1 else ""
        say(f"accepted: {count(receipt.users)}{requests}")
    return Exit.DONE


async def _send(
    client: AsyncPushClient, users: Sequence[str], message: Mapping[str, Any], fields: Mapping[str, Any] | None
) -> Receipt:
    try:
        return await client.send(users, message, custom_fields=fields)
    except asyncio.CancelledError:
        ended = (await client.aclose(drain=0)).abandoned
        for each in ended:
            warn(f"interrupted: {count(len(each.user_ids))} {each.outcome}")
        raise
    finally:
        await client.aclose()


def _success(receipt: Receipt) -> dict[str, Any]:
    return {
        "outcome": receipt.outcome,
        "users": {receipt.outcome: receipt.users},
        "duplicates": receipt.duplicates,
        "requests": receipt.requests,
        "status": receipt.status,
    }


def _failure(error: PushError) -> dict[str, Any]:
    ended = error.outcomes.values() if isinstance(error, PartialError) else [error.outcome] * len(error.user_ids)
    counts: Counter[Outcome] = Counter(ended)
    return {
        "outcome": error.outcome,
        "users": dict(counts),
        "status": error.attempts[-1].status,
        "error": str(error),
    }


def create(
    file: File,
    /,
    *,
    yes: Flag = False,
    json: Flag = False,
    service: Service | None = None,
    patience: Patience | None = None,
    pace: Pace | None = None,
) -> int:
    """Create the push campaign in a file, and print its uuid.

    Parameters
    ----------
    file
        A JSON file that holds the campaign; - is standard input.
    yes
        Do not ask before sending to another machine.
    json
        Print the result as one JSON object.
    """
    campaign = read_campaign(file)
    settings = settings_of(service, patience, pace)
    advise(campaign)
    confirm(f"Create this campaign at {settings['base_url']}?", settings, yes=yes)
    created = asyncio.run(_create(AsyncPushClient(**settings), campaign))
    if json:
        print_json({"uuid": created.uuid})
    else:
        say(created.uuid)
    return Exit.DONE


async def _create(client: AsyncPushClient, campaign: Mapping[str, Any]) -> CampaignCreated:
    async with client:
        return await client.create_campaign(campaign)
