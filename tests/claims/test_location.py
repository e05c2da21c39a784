"""Claim stores by location, and clients that own their store."""

import asyncio

import pytest
from support.service_thread import served
from support.shaky_claims import deliver

from pushsdk import ConfigurationError, MobilePush, PushClient
from pushsdk._runs import keyed
from pushsdk.claims import MemoryClaims, store_at
from pushsdk.client import AsyncPushClient
from pushsdk.testing import FakeService

URL = "https://push.example"


@pytest.fixture
def opened(monkeypatch):
    """The stores that clients have made."""
    stores = []

    def store_at_location(location):
        stores.append(store_at(location))
        return stores[-1]

    monkeypatch.setattr(keyed, "store_at", store_at_location)
    return stores


@pytest.mark.parametrize(
    ("location", "shown"),
    [
        ("memory:", "MemoryClaims(claims=0)"),
        ("sqlite:/jobs/claims.db", "SqliteClaims('/jobs/claims.db')"),
        ("redis://:s3cret@host:6379/1", "RedisClaims(prefix='pushsdk:claim:')"),
        ("rediss://host", "RedisClaims(prefix='pushsdk:claim:')"),
        ("unix:///run/redis.sock", "RedisClaims(prefix='pushsdk:claim:')"),
        ("postgres://me:s3cret@host/jobs", "PostgresClaims(table='pushsdk_claims')"),
        ("postgresql://host/jobs", "PostgresClaims(table='pushsdk_claims')"),
        ("s3://bucket/jobs", 'ObjectClaims(S3Store(bucket="bucket", prefix="jobs"))'),
    ],
)
def test_a_location_names_a_store(location, shown):
    store = store_at(location, claim_ttl=3600.0)
    assert repr(store) == shown
    assert store.claim_ttl == 3600.0


@pytest.mark.parametrize(
    "claims",
    [
        *("", "s3cret:", "sqlite:", "sqlite:///s3.db", "memory:s3cret", "mysql://s3cret@host"),
        *("redis://s3:cret@h:s3cret", object(), MemoryClaims),
    ],
)
def test_anything_else_is_refused_without_showing_it(claims):
    with pytest.raises(ConfigurationError, match=r"claims must be|the URL of a|without //") as caught:
        AsyncPushClient(URL, "key", claims=claims)
    shown = f"{caught.value!r} {caught.value.__cause__!r} {caught.value.__context__!r}"
    assert "s3" not in shown.replace("s3://BUCKET/PREFIX", "")


@pytest.mark.parametrize("kind", ["memory", "sqlite", "redis", "postgres", "objects"])
def test_a_client_uses_the_store_at_a_location(kind, request, monkeypatch, tmp_path):
    location = "memory:" if kind == "memory" else f"{kind}:{tmp_path / 'claims'}"
    if kind in ("redis", "postgres", "objects"):
        location = request.getfixturevalue(f"{kind}_url")
    message = MobilePush(title={"en": "Hello"})
    with served(monkeypatch) as service, PushClient(claims=location) as client:
        receipts = [client.send("user-1", message, idempotency_key=f"at {kind}") for _ in range(2)]
    assert [receipt.already_accepted for receipt in receipts] == [0, 1]
    assert service.users() == {"user-1": 1}


async def test_a_client_opens_its_store_at_the_first_use_shares_it_and_closes_it(tmp_path, opened):
    path = tmp_path / "claims.db"
    async with FakeService().client(claims=f"sqlite:{path}") as client:
        await deliver(client, idempotency_key=None)
        assert not path.exists()
        await deliver(client)
        assert path.exists()
        assert (await deliver(client.with_options(timeout=5.0))).already_accepted == 1
    (store,) = opened
    with pytest.raises(ConfigurationError, match="is closed"):
        await store.get(["0" * 64])


@pytest.mark.parametrize("trouble", [ValueError, TimeoutError])
async def test_a_store_that_can_not_be_closed_is_logged_and_the_client_is_closed(trouble, opened, monkeypatch, caplog):
    async def aclose():
        if trouble is TimeoutError:
            await asyncio.get_running_loop().create_future()
        raise ValueError("s3cret")

    client = FakeService().client(claims="memory:")
    await deliver(client)
    opened[0].timeout = 0.01
    monkeypatch.setattr(opened[0], "aclose", aclose)
    assert (await client.aclose()).unknown == ()
    assert caplog.messages == [f"the claim store could not be closed ({trouble.__name__})"]
