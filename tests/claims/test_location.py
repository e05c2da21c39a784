"""Claim stores by location, and clients that own their store."""

import asyncio
import logging
import pickle
from pathlib import Path
from typing import Any

import pytest
from support.service_thread import served

from pushsdk import ConfigurationError, MobilePush, PushClient
from pushsdk._runs import keyed
from pushsdk.claims import ClaimStore, MemoryClaims, PostgresClaims, RedisClaims, SqliteClaims, store_at
from pushsdk.client import AsyncPushClient
from pushsdk.testing import FakeService

HELLO = MobilePush(title={"en": "Hello"}, ios_enabled=True)
URL = "https://push.example"
KINDS = ["memory", "sqlite", "redis", "postgres"]


@pytest.fixture
def location(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    kind: str = request.param
    if kind in ("redis", "postgres"):
        return str(request.getfixturevalue(f"{kind}_url"))
    return "memory:" if kind == "memory" else f"{kind}:{tmp_path / 'claims'}"


EACH = pytest.mark.parametrize("location", KINDS, indirect=True)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[ClaimStore]:
    """The stores that clients have made."""
    stores: list[ClaimStore] = []

    def store_at_location(location: str) -> ClaimStore:
        stores.append(store_at(location))
        return stores[-1]

    monkeypatch.setattr(keyed, "store_at", store_at_location)
    return stores


@pytest.mark.parametrize(
    ("location", "kind", "shown"),
    [
        ("memory:", MemoryClaims, "MemoryClaims(claims=0)"),
        ("sqlite:/jobs/claims.db", SqliteClaims, "SqliteClaims('/jobs/claims.db')"),
        ("redis://:s3cret@host:6379/1", RedisClaims, "RedisClaims(prefix='pushsdk:claim:')"),
        ("rediss://host", RedisClaims, "RedisClaims(prefix='pushsdk:claim:')"),
        ("unix:///run/redis.sock", RedisClaims, "RedisClaims(prefix='pushsdk:claim:')"),
        ("postgres://me:s3cret@host/jobs", PostgresClaims, "PostgresClaims(table='pushsdk_claims')"),
        ("postgresql://host/jobs", PostgresClaims, "PostgresClaims(table='pushsdk_claims')"),
    ],
)
def test_a_location_names_a_store(location: str, kind: type[ClaimStore], shown: str) -> None:
    store = store_at(location, claim_ttl=3600.0)
    assert (type(store), repr(store), store.claim_ttl) == (kind, shown, 3600.0)


@pytest.mark.parametrize(
    "location",
    [
        "",
        "s3cret",
        "s3cret:",
        "sqlite:",
        "memory:s3cret",
        "mysql://s3cret@host",
        "redis://s3:cret@h:s3cret",
    ],
)
def test_any_other_location_is_refused_without_showing_it(location: str) -> None:
    with pytest.raises(ConfigurationError, match="must be") as caught:
        AsyncPushClient(URL, "key", claims=location)
    assert "s3" not in f"{caught.value!r} {caught.value.__cause__!r} {caught.value.__context__!r}"


def test_a_path_in_the_form_of_a_url_is_refused_as_it_would_begin_at_the_root() -> None:
    text = "^claims: write sqlite:claims.db, or sqlite:/var/lib/claims.db: a path, not a URL$"
    with pytest.raises(ConfigurationError, match=text):
        store_at("sqlite:///claims.db")


@EACH
async def test_a_client_uses_the_store_at_a_location_and_closes_it(
    location: str, opened: list[ClaimStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    service, closed = FakeService(), list[ClaimStore]()
    async with service.client(claims=location) as client:
        receipts = [await client.send("u", HELLO, idempotency_key="owned") for _ in range(2)]
        (store,) = opened
        aclose = store.aclose
        monkeypatch.setattr(store, "aclose", lambda: closed.append(store) or aclose())
    await client.aclose()
    assert ([receipt.already_accepted for receipt in receipts], service.users()) == ([0, 1], {"u": 1})
    assert closed == [store]


@EACH
def test_a_client_without_an_event_loop_uses_the_store_at_a_location(
    location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(monkeypatch) as service:
        with PushClient(claims=location) as client:
            receipts = [client.send("u", HELLO, idempotency_key="owned-sync") for _ in range(2)]
        assert [receipt.already_accepted for receipt in receipts] == [0, 1]
        assert service.users() == {"u": 1}


async def test_a_store_at_a_location_is_opened_by_its_first_use(tmp_path: Path) -> None:
    client = FakeService().client(claims=f"sqlite:{tmp_path / 'claims.db'}")
    async with client:
        await client.send("u", HELLO)
        assert not (tmp_path / "claims.db").exists()
        await client.send("u", HELLO, idempotency_key="job")
        assert (tmp_path / "claims.db").exists()


async def test_clients_with_other_options_share_the_store(opened: list[ClaimStore]) -> None:
    async with FakeService().client(claims="memory:") as client:
        await client.send("u", HELLO, idempotency_key="job")
        receipt = await client.with_options(timeout=5.0).send("u", HELLO, idempotency_key="job")
    assert (receipt.already_accepted, len(opened)) == (1, 1)


async def test_the_store_is_closed_if_the_connections_can_not_be_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: list[ClaimStore]
) -> None:
    async def fail(_: object) -> None:
        raise OSError

    client = FakeService().client(claims=f"sqlite:{tmp_path / 'claims.db'}")
    await client.send("u", HELLO, idempotency_key="job")
    monkeypatch.setattr(type(client._lifetime.engine.transport), "close", fail)
    with pytest.raises(OSError):
        await client.aclose()
    with pytest.raises(ConfigurationError, match="is closed"):
        await opened[0].get(["0" * 64])


@pytest.mark.parametrize("trouble", [ValueError, TimeoutError])
async def test_a_store_that_can_not_be_closed_is_logged_and_the_client_is_closed(
    trouble: type[Exception],
    opened: list[ClaimStore],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    client = FakeService().client(claims="memory:")
    await client.send("u", HELLO, idempotency_key="job")
    if trouble is TimeoutError:
        opened[0].timeout = 0.01

    async def aclose() -> None:
        if trouble is TimeoutError:
            await asyncio.get_running_loop().create_future()
        raise ValueError("s3cret")

    monkeypatch.setattr(opened[0], "aclose", aclose)
    with caplog.at_level(logging.WARNING, "pushsdk"):
        report = await client.aclose()
    assert report.unknown == ()
    assert caplog.messages == [f"the claim store could not be closed ({trouble.__name__})"]


@pytest.mark.parametrize("client", [AsyncPushClient, PushClient])
def test_a_location_is_neither_shown_nor_pickled(client: Any) -> None:
    owner = client(URL, "key", claims="redis://:s3cret@host")
    assert "s3cret" not in f"{owner!r} {vars(owner)!r}"
    assert not any("s3cret" in repr(vars(part)) for part in vars(owner).values() if hasattr(part, "__dict__"))
    with pytest.raises(TypeError):
        pickle.dumps(owner)
