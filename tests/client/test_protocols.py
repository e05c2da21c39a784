"""A client has the protocols that it supports, and no others: libraries that ask get a true answer."""

import asyncio
import contextlib
import inspect
import pickle
from unittest import mock

import pytest
import svcs
from support.wire_server import WireServer

from pushsdk import AsyncPushClient, MobilePush, PushClient

URL = "https://push.example"
MESSAGE = MobilePush(title={"en": "Hello"}, ios_enabled=True)
BLOCKING = contextlib.AbstractContextManager
ASYNC = contextlib.AbstractAsyncContextManager


@pytest.mark.parametrize(
    ("client", "has", "lacks"), [(AsyncPushClient, ASYNC, BLOCKING), (PushClient, BLOCKING, ASYNC)]
)
def test_a_client_is_the_context_manager_that_it_supports(client, has, lacks):
    made = client(URL, "key")
    assert isinstance(made, has)
    assert not isinstance(made, lacks)


@pytest.mark.parametrize("client", [AsyncPushClient, PushClient])
def test_a_mock_of_a_client_has_its_signatures(client):
    mocked = mock.create_autospec(client, instance=True)
    with pytest.raises(TypeError):
        mocked.send("user-1")
    with pytest.raises(AttributeError):
        mocked.push("user-1")
    assert inspect.iscoroutinefunction(client.broadcast) is (client is AsyncPushClient)


@pytest.mark.parametrize("base", [AsyncPushClient, PushClient])
@pytest.mark.parametrize("name", ["headers", "timeout"])
def test_a_subclass_has_attributes_of_any_name(base, name):
    class Own(base):
        def __init__(self):
            super().__init__(URL, "key")
            setattr(self, name, "own")

    own = Own()
    assert getattr(own, name) == "own"
    assert getattr(own.with_options(timeout=5.0), name) == "own"


@pytest.mark.parametrize("client", [AsyncPushClient, PushClient])
def test_a_client_lacks_the_attributes_that_it_does_not_have(client):
    made = client(URL, "key")
    assert not hasattr(made, "shutdown")
    assert not hasattr(made, "_repr_html_")
    assert not callable(getattr(made, "__getitem__", None))
    with pytest.raises(TypeError, match="can't be pickled"):
        pickle.dumps(made)


async def test_a_container_of_services_closes_an_async_client_after_its_last_call():
    registry = svcs.Registry()
    async with WireServer() as server, svcs.Container(registry) as container:
        registry.register_factory(AsyncPushClient, lambda: AsyncPushClient(server.base_url, "key"))
        client = await container.aget(AsyncPushClient)
        sends = [client.submit(f"user-{number}", MESSAGE) for number in range(50)]
        await container.aclose()
        assert client.closed
        receipts = await asyncio.gather(*sends)
    assert sum(receipt.users for receipt in receipts) == 50
