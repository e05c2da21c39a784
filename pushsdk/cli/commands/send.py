"""``pushsdk send`` and ``pushsdk campaign create``: one call each."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any, TypeVar

from cyclopts import Parameter

from pushsdk import (
    AsyncPushClient,
    Batching,
    CampaignRequest,
    Event,
    PartialError,
    PushError,
    Receipt,
    SendAbandoned,
)
from pushsdk._core import wire
from pushsdk._core.arguments import check_users
from pushsdk._core.body import encode_user_ids, push_body
from pushsdk._core.operations import CREATE_CAMPAIGN, PUSH
from pushsdk._core.words import count
from pushsdk.cli.exit import Exit, text_of, usage_error
from pushsdk.cli.files import KIND_NAMES, DryRun, MessageOptions, print_advice, print_request, read_ids, read_resource
from pushsdk.cli.options import CallOptions, Json, Yes, confirm, quoted, title_of
from pushsdk.cli.settings import allowed
from pushsdk.cli.terminal import print_json, say, warn

T = TypeVar("T")
UserIds = Annotated[
    str,
    Parameter(
        help="User ids, at most 1000, before the options; @FILE reads them from a file, - from standard input. Write "
        "@@ann for the id @ann, and pass ids that start with - after --."
    ),
]


def send(
    *users: UserIds,
    content: MessageOptions = MessageOptions(),
    dry_run: DryRun = False,
    yes: Yes = False,
    json: Json = False,
    options: CallOptions = CallOptions(),
) -> int:
    if not users:
        raise usage_error("name at least one user: an id, @FILE with one id per line, or - for standard input")
    settings = options.settings(dry_run=dry_run)
    message, fields = content.read()
    ids = read_ids(users, Batching().max_users)
    users_listed = allowed(check_users(ids, Batching().max_users)[0], settings)
    if dry_run and not users_listed:
        raise usage_error("no user is left: --only-users names none of these users")
    if dry_run:
        body = push_body(encode_user_ids(users_listed), wire.encode_message(message), wire.encode_custom_fields(fields))
        print_request(settings["base_url"], PUSH, body, json=json)
        return Exit.DONE
    confirm(lambda: f"Push{quoted(title_of(message))} to {count(len(users_listed))}", settings, yes=yes)
    try:
        receipt = asyncio.run(_call(settings, lambda client: client.send(ids, message, custom_fields=fields)))
    except PushError as error:
        if json and error.user_ids:
            print_json(_failure(error))
        raise
    _print_receipt(receipt, json=json)
    return Exit.DONE


def _print_receipt(receipt: Receipt, *, json: bool) -> None:
    if json:
        counts = {name: getattr(receipt, name) for name in ("duplicates", "requests", "status")}
        print_json({"outcome": receipt.outcome, "users": {receipt.outcome: receipt.users}, **counts})
    else:
        requests = f" in {count(receipt.requests, 'request')}" if receipt.requests > 1 else ""
        say(f"accepted: {count(receipt.users)}{requests}")


async def _call(settings: Mapping[str, Any], call: Callable[[AsyncPushClient], Awaitable[T]]) -> T:
    """Make a call with a client, which tells what an interruption leaves."""

    def tell(event: Event) -> None:
        if isinstance(event, SendAbandoned):
            warn(f"interrupted: {count(len(event.user_ids))} {event.outcome}")

    client = AsyncPushClient(**settings, on_event=tell)
    try:
        return await call(client)
    finally:
        await client.aclose(drain=0)


def _failure(error: PushError) -> dict[str, Any]:
    outcomes = error.outcomes.values() if isinstance(error, PartialError) else [error.outcome] * len(error.user_ids)
    retries = {"retryable": error.retryable, "retry_after": error.retry_after}
    texts = {"error": text_of(error), "body": error.body.decode(errors="replace")}
    result = {"outcome": error.outcome, "code": error.code, "users": Counter(outcomes), "status": error.status}
    return {**result, **retries, **texts}


def create(
    file: str,
    /,
    *,
    force: bool = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    json: Json = False,
    options: CallOptions = CallOptions(),
) -> int:
    """Create a push campaign from a file and print its uuid.

    Args:
        file: The campaign's JSON file; - is standard input.
        force: Send despite a misspelled field, value or placeholder, or without a platform, text or segment.
    """
    settings = options.settings(dry_run=dry_run)
    name, campaign, kind = read_resource(file)
    if kind is not CampaignRequest:
        raise usage_error(
            f"{name}: must be a campaign, with name, segment, schedule and message, not a {KIND_NAMES[kind]}"
        )
    print_advice(campaign, force=force)
    if dry_run:
        print_request(settings["base_url"], CREATE_CAMPAIGN, wire.encode_campaign(campaign), json=json)
        return Exit.DONE
    confirm(lambda: f"Create the campaign{quoted(str(campaign.get('name', '')))}", settings, yes=yes)
    created = asyncio.run(_call(settings, lambda client: client.create_campaign(campaign)))
    if json:
        print_json({"uuid": created.uuid})
    else:
        say(created.uuid)
    return Exit.DONE
