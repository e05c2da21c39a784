"""Claims in an object store, over its protocol: requests, lost responses, the store's clock, refusals and errors."""

import asyncio
import os
import re
import time

import pytest
from obstore.store import LocalStore, MemoryStore
from support.claim_puts import KEY, ONE, THREE, TWO, get, key_of, put
from support.claim_race import race
from support.claim_stores import object_claims
from support.programs import run_program
from support.servers import free_port
from support.shaky_claims import deliver

from pushsdk import ClaimStoreError, ConfigurationError
from pushsdk.claims import Claim, ObjectClaims, _blocking
from pushsdk.testing import FakeService

DAY = 86400.0


async def test_a_claim_costs_two_writes_and_no_read(objects):
    service = FakeService()
    store = object_claims(objects.url, "jobs")
    async with service.client(claims=store) as client:
        await deliver(client, idempotency_key="the first, with the self-test")
        before = objects.requests.copy()
        for number in range(10):
            await deliver(client, idempotency_key=f"job {number}")
    assert objects.requests - before == {"PUT": 20}
    assert all(re.fullmatch("jobs/[0-9a-f]{64}", name) for name in objects.objects), "the test object is deleted"


@pytest.mark.parametrize("fate", ["lost", 503])
@pytest.mark.parametrize("places", [{0}, {1}, {0, 1}, {1, 2}, {0, 1, 2, 3}])
async def test_a_write_whose_response_is_lost_neither_locks_the_job_nor_pushes_twice(places, fate, objects):
    service = FakeService()
    store = object_claims(objects.url, "jobs")
    other = object_claims(objects.url, "jobs")
    assert await store.risks() == []
    assert await other.risks() == []
    writes = iter(range(100))
    objects.fate = lambda method, key: fate if method == "PUT" and next(writes) in places else None
    async with service.client(claims=store) as client:
        results = [await deliver(client) for _ in range(5)]
    async with service.client(claims=other) as client:
        results.append(await deliver(client))
    receipts = [result.already_accepted for result in results if type(result) is not ClaimStoreError]
    assert receipts == [0] + [1] * (len(receipts) - 1)
    assert service.users() == {"user-1": 1}
    assert len(receipts) > 2


async def test_claims_expire_by_the_stores_clock_and_are_taken_over_once(objects, monkeypatch):
    late = object_claims(objects.url, "jobs")
    await put(late, ONE)
    monkeypatch.setattr(time, "time", lambda clock=time.time: clock() + 30 * DAY)
    objects.ahead = -30 * DAY
    assert await put(object_claims(objects.url, "jobs"), TWO) == ONE
    objects.ahead += 6 * DAY
    assert await get(object_claims(objects.url, "jobs")) == ONE
    objects.ahead += 2 * DAY
    stores = [object_claims(objects.url, "jobs") for _ in range(4)]
    claims = [TWO, THREE] * 2
    assert [pair async for pair in stores[0].scan()] == []
    answers = await asyncio.gather(*(put(store, claim) for store, claim in zip(stores, claims, strict=True)))
    winner = await get(stores[0])
    assert winner in (TWO, THREE)
    assert set(answers) == {None, winner}
    assert await put(late, Claim("4" * 32, b"{}"), ONE) == winner


async def test_forgotten_tags_are_read_again(objects, monkeypatch):
    monkeypatch.setattr(_blocking, "REMEMBERED", 2)
    store = object_claims(objects.url, "jobs")
    for claim, expected in ((ONE, ()), (TWO, (ONE,))):
        assert [await put(store, claim, *expected, key=key_of(number)) for number in range(5)] == [None] * 5
    assert objects.requests["GET"] == 5


@pytest.mark.parametrize("foreign", [b"", b"[]", b'{"token": "1"}', b"\xff"])
async def test_a_foreign_object_is_never_replaced(objects, foreign):
    store = object_claims(objects.url, "jobs")
    name = f"jobs/{KEY}"
    objects.objects |= {name: (foreign, 0.0), "jobs/readme": (b"", 0.0), f"jobs-2/{KEY}": (b"", 0.0)}
    stored = await put(store, TWO, ONE)
    assert objects.objects[name][0] == foreign
    assert [pair async for pair in store.scan()] == [(KEY, stored)]


async def test_exactly_one_of_two_processes_makes_each_of_a_thousand_claims(objects_url):
    assert await race(objects_url, 1000) == list(range(1000))


@pytest.mark.parametrize("header", ["If-None-Match", "If-Match"])
async def test_a_store_that_ignores_a_condition_is_refused(objects, header):
    objects.obeys[header] = False
    service = FakeService()
    async with service.client(claims=object_claims(objects.url, "jobs")) as client:
        error = await deliver(client)
    assert type(error) is ConfigurationError
    assert service.requests == []
    assert objects.objects == {}
    assert "it has no conditional writes: use S3, Azure" in str(error)


@pytest.mark.parametrize("places", [[0, 1], [2], [3]])
async def test_a_test_whose_writes_are_repeated_refuses_no_store(objects, objects_url, places):
    writes = iter(range(100))
    objects.fate = lambda method, key: "late" if method == "PUT" and next(writes) in places else None
    assert await put(ObjectClaims(objects_url), ONE) is None


async def test_a_store_that_changes_no_object_is_refused(objects):
    objects.fate = lambda method, key: 412 if method == "PUT" and objects.requests["HEAD"] else None
    with pytest.raises(ConfigurationError, match="it has no conditional writes"):
        await put(object_claims(objects.url, "jobs"), ONE)


async def test_a_store_without_the_right_to_delete_works(objects):
    objects.fate = lambda method, key: 403 if method == "POST" else None
    assert await put(object_claims(objects.url, "jobs"), ONE) is None


async def test_a_store_that_was_used_before_a_fork_is_refused_before_it_hangs(monkeypatch):
    store = ObjectClaims(MemoryStore())
    assert await put(store, ONE) is None
    monkeypatch.setattr(os, "getpid", lambda: -1)
    for each in (store, ObjectClaims(MemoryStore())):
        with pytest.raises(ConfigurationError, match="used before a fork, which object stores don't survive"):
            await get(each)


EXITS = """
    import asyncio, sys
    from pushsdk.claims import ObjectClaims

    async def ask():
        async with ObjectClaims(sys.argv[1]) as store:
            return await store.get(["0" * 64])

    print(asyncio.run(ask()))
"""


@pytest.mark.parametrize("times", [3, pytest.param(20, marks=pytest.mark.long)])
def test_a_process_that_ends_after_a_claim_does_not_abort(objects_url, times):
    assert {run_program(EXITS, objects_url) for _ in range(times)} == {(0, "[None]\n", "")}


DENIED = "it refuses access: are the credentials and the clock right, and may they get, put, list and delete objects?"


@pytest.mark.parametrize(
    ("trouble", "words"),
    [
        (403, DENIED),
        (401, DENIED),
        ("no bucket", "the bucket or container does not exist: create it, or correct its name"),
        ("down", "it can't be reached (GenericError): are network, endpoint and region right? An http://"),
        ("local", "it has no conditional writes: use S3, Azure Blob Storage, or another claim store"),
        ("no credentials", "no credentials were found: set AWS_ACCESS_KEY_ID and"),
    ],
)
async def test_trouble_is_named_with_its_fix_and_without_secrets(trouble, words, objects, tmp_path):
    class Roleless(MemoryStore):
        def put(self, *_, **__):
            raise RuntimeError("PUT http://169.254.169.254/latest/api/token?s3cret")

    stores = {"local": LocalStore(tmp_path), "no credentials": Roleless()}
    store = object_claims(f"http://127.0.0.1:{free_port()}" if trouble == "down" else objects.url, "jobs")
    if trouble in stores:
        store = ObjectClaims(stores[trouble])
    if trouble == "no bucket":
        objects.bucket = "another"
    objects.fate = lambda method, key: trouble if isinstance(trouble, int) else None
    service = FakeService()
    async with service.client(claims=store) as client:
        error = await deliver(client)
        await client.aclose(drain=0)
    assert type(error) is ClaimStoreError
    assert service.requests == []
    assert f"not sent: the claim store failed (ObjectStoreError: {words}" in str(error)
    cause = error.__cause__
    shown = f"{error!r} {cause!r} {cause.__cause__!r} {cause.__context__!r} {store!r} {vars(store)!r}"
    assert not any(secret in shown for secret in ("s3cret", "127.0.0.1"))


@pytest.mark.parametrize(
    "wrong",
    [
        *("s3://", "s3:///jobs", "s3://key:s3cret@bucket/jobs", "s3://bucket?x=s3cret", "az://container/no-account"),
        *("s3://bucket/a b", "s3://bucket#s3cret", "gs://s3cret", object(), None),
    ],
)
def test_an_invalid_location_is_refused_without_showing_it(wrong):
    with pytest.raises(ConfigurationError, match=r"be like s3://bucket/prefix|obstore store") as caught:
        ObjectClaims(wrong)
    error = caught.value
    assert "s3cret" not in f"{error!r} {error.__cause__!r} {error.__context__!r}"
