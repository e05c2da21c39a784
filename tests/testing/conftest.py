"""The push service in a thread, and an inbox for each test, without the plugin."""

import json
import urllib.error
import urllib.request

import pytest

from pushsdk.emulator import Emulator
from pushsdk.testing.inbox import PushInbox, in_thread

HELLO = {"title": {"en": "Hello {{ name | 'you' }}", "de": "Hallo"}, "body": {"en": "Your order is on its way"}}


@pytest.fixture(scope="session")
def emulator():
    with in_thread(Emulator()) as emulator:
        yield emulator


@pytest.fixture
def inbox(emulator, request):
    inbox = PushInbox(emulator, api_key=f"key of {request.node.name}", label=request.node.name)
    yield inbox
    inbox.close()


@pytest.fixture
def send(inbox):
    """Send a push without the SDK, and return the status, None if there is no response."""

    def post(*users, message=HELLO, path="/v1/push", key=None, **options):
        body = {"userIds": users, "message": message, **options} if users else {"message": message, **options}
        headers = {"Api-Key": key or inbox.api_key, "Content-Type": "application/json"}
        request = urllib.request.Request(inbox.base_url + path, json.dumps(body).encode(), headers)
        try:
            with urllib.request.urlopen(request) as response:
                return response.status
        except urllib.error.HTTPError as error:
            error.close()
            return error.code
        except OSError:
            return None

    return post
