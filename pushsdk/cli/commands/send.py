"""``pushsdk send`` and ``pushsdk campaign create``: one call each."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cyclopts import Parameter

from pushsdk import AsyncPushClient, CampaignCreated, PartialError, PushError, Receipt
from pushsdk._core.words import count
from pushsdk.cli.exit import Exit, usage_error
from pushsdk.cli.files import print_advice, read_campaign, read_fields, read_message
from pushsdk.cli.options import CallOptions, File, Json, Yes, confirm
from pushsdk.cli.terminal import print_json, say, warn

_NO_FILE = (
    "send takes user ids, not a file; to read ids from a file: pushsdk broadcast ids.txt --message FILE --run FILE; "
    "to push to an id that starts with @, write @@ann for @ann"
)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class MessageOptions:
    """The message: a file, or a title and a body."""

    message: File | None = None
    """Read the message from this JSON file; - is standard input."""
    title: str | None = None
    """Set the title of a message to iOS and Android, without a file."""
    body: str | None = None
    """Set the body of that message."""
    lang: str = "en"
    """Set the language of --title and --body."""
    custom_fields: str | None = None
    """Set the custom fields: a JSON object, or @FILE."""

    def read(self) -> tuple[Mapping[str, Any], Mapping[str, Any] | None]:
        """Return the message and the custom fields. Raises a usage error."""
        texts = {name: {self.lang: text} for name in ("title", "body") if (text := getattr(self, name)) is not None}
        if (self.message is None) is not bool(texts):
            raise usage_error("pass the message either with --message FILE, or with --title and --body")
        fields = None if self.custom_fields is None else read_fields("--custom-fields", self.custom_fields)
        if self.message is not None:
            return read_message(self.message), fields
        return {"type": "MOBILE_PUSH", "iosEnabled": True, "androidEnabled": True, **texts}, fields


def send(
    *users: str,
    content: MessageOptions = MessageOptions(),
    yes: Yes = False,
    json: Json = False,
    options: CallOptions = CallOptions(),
) -> int:
    """Push a message to a few users.

    Parameters
    ----------
    users
        User ids, at most 1000; write @@ann for the id @ann, and pass ids that start with - after --.
    """
    if not users:
        raise usage_error("name at least one user")
    if any(user.startswith("@") and not user.startswith("@@") for user in users):
        raise usage_error(_NO_FILE)
    users = tuple(user[1:] if user.startswith("@@") else user for user in users)
    message, fields = content.read()
    settings = options.settings()
    print_advice(message)
    confirm(f"Push to {count(len(set(users)))} at {settings['base_url']}?", settings, yes=yes)
    try:
        receipt = asyncio.run(_send(AsyncPushClient(**settings), users, message, fields))
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
        for abandoned in (await client.aclose(drain=0)).abandoned:
            warn(f"interrupted: {count(len(abandoned.user_ids))} {abandoned.outcome}")
        raise
    finally:
        await client.aclose()


def _success(receipt: Receipt) -> dict[str, Any]:
    counts = {name: getattr(receipt, name) for name in ("duplicates", "requests", "status")}
    return {"outcome": receipt.outcome, "users": {receipt.outcome: receipt.users}, **counts}


def _failure(error: PushError) -> dict[str, Any]:
    outcomes = error.outcomes.values() if isinstance(error, PartialError) else [error.outcome] * len(error.user_ids)
    users, status = Counter(outcomes), error.attempts[-1].status
    return {"outcome": error.outcome, "users": users, "status": status, "error": str(error)}


def create(file: File, /, *, yes: Yes = False, json: Json = False, options: CallOptions = CallOptions()) -> int:
    """Create a push campaign from a file and print its uuid.

    Parameters
    ----------
    file
        The JSON file of the campaign; - is standard input.
    """
    campaign = read_campaign(file)
    settings = options.settings()
    print_advice(campaign)
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
