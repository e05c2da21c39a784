"""``pushsdk campaign create``: one campaign out of a file."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from pushsdk import AsyncPushClient, CampaignCreated
from pushsdk.cli._confirm import confirm
from pushsdk.cli._exit import Exit
from pushsdk.cli._files import advise, read_campaign
from pushsdk.cli._options import File, Flag, Pace, Patience, Service, settings_of
from pushsdk.cli._terminal import print_json, say

__all__ = ["create"]


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
    confirm(f"Create this campaign at {settings.base_url}?", settings, yes=yes)
    created = asyncio.run(_create(AsyncPushClient(**settings.client_options()), campaign))
    if json:
        print_json({"uuid": created.uuid})
    else:
        say(created.uuid)
    return Exit.DONE


async def _create(client: AsyncPushClient, campaign: Mapping[str, Any]) -> CampaignCreated:
    async with client:
        return await client.create_campaign(campaign)
