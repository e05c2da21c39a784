"""kill -9 under load: everything answered with 204 is stored, and nothing twice."""

import asyncio
import itertools
import sys
from collections import Counter
from types import SimpleNamespace

import pytest
from support.control_api import Api, until
from support.store_entries import users

from pushsdk.emulator.store.queries import Store
from pushsdk.emulator.store.search import parse

SERVE = """
import asyncio, sys
from pushsdk.emulator import Emulator
async def main():
    async with Emulator(store=sys.argv[1], api_key="key") as emulator:
        print(emulator.url.rpartition(":")[2], flush=True)
        await asyncio.Event().wait()
asyncio.run(main())
"""


async def send_until_it_dies(port, number, responses, starts):
    """Send requests, each with one user twice; count the users of all requests, and of the answered ones."""
    api = Api(SimpleNamespace(url=f"http://127.0.0.1:{port}", api_key="key"))
    for count in itertools.count():
        users = [f"u{number}-{count}", f"u{number}-{count}", f"all-{count % 5}"]
        starts.update(users)
        body = {"userIds": users, "message": {"title": {"en": "x" * (count % 400)}}}
        try:
            answer = await api.raw("POST", "/external/api/v1/push", body)
        except (ConnectionError, IndexError):  # no response, or none that is complete
            return
        assert answer.status == 204
        responses.update(users)


@pytest.mark.parametrize("requests", [1, 200])
async def test_every_answered_request_survives_a_kill(tmp_path, requests):
    responses = Counter()
    starts = Counter()
    for _ in range(2):  # the second process continues with the same file
        command = sys.executable, "-c", SERVE, str(tmp_path / "kept")
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        port = int(await process.stdout.readline())
        enough = responses.total() + 3 * requests
        senders = [asyncio.create_task(send_until_it_dies(port, number, responses, starts)) for number in range(8)]
        await until(lambda enough=enough: responses.total() >= enough)
        process.kill()
        await asyncio.gather(*senders)
        await process.wait()
    store = Store(tmp_path / "kept")
    box = store.find("key")
    counted = Counter(users(store, box))
    assert responses <= counted <= starts
    listed = Counter(user for push in store.sent(box) for user in push.user_ids)
    assert listed == counted
    assert all(store.accepted(box, user) == count for user, count in counted.items())
    assert len(store.requests(box, parse("is:accepted"), limit=-1)) == counted.total() // 3
    store.close()
