"""Several tenants on one client: each user is pushed under the key that its caller's callable returned last."""

import asyncio
from collections import Counter, defaultdict
from contextvars import ContextVar

import pytest
from support.fake_service import MESSAGE, FakeService, answer, client_of, idle, outcome_of, refused, start
from support.virtual_time import turns, virtual

from pushsdk import (
    AsyncPushClient,
    AuthenticationError,
    Batching,
    ConfigurationError,
    MobilePush,
    NotSentError,
    Outcome,
    Receipt,
    RetryPolicy,
)
from pushsdk.claims import MemoryClaims
from pushsdk.emulator import Emulator

TENANT = ContextVar("TENANT", default="nobody")


class Vault:
    """The keys of the tenants, and how often each was asked for."""

    def __init__(self, key_of="key-{}".format):
        self.key_of = key_of
        self.asked = Counter()

    def get(self):
        tenant = TENANT.get()
        self.asked[tenant] += 1
        return self.key_of(tenant)

    async def get_later(self):
        await asyncio.sleep(0.01)
        return self.get()

    def source(self, *, is_async):
        return self.get_later if is_async else self.get


async def send_as(client, tenant, user="1", **options):
    TENANT.set(tenant)
    return await client.send(f"{tenant}:{user}", MESSAGE, **options)


SYNC_OR_ASYNC = pytest.mark.parametrize("is_async", [False, True])


def pushed(service):
    """The users that were pushed under each key."""
    keys = defaultdict(set)
    for request in service.requests:
        if request.accepted:
            keys[request.api_key].update(request.user_ids)
    return dict(keys)


@SYNC_OR_ASYNC
async def test_two_tenants_that_send_an_equal_message_at_once_are_pushed_under_their_keys(is_async):
    source = Vault().source(is_async=is_async)
    async with Emulator() as emulator, AsyncPushClient(emulator.base_url, source) as push:
        for _ in range(2):  # over a new connection, and over an idle one
            await asyncio.gather(*(push_as(push, tenant) for tenant in ("acme", "globex")))
        assert emulator.inbox("key-acme").users() == {"acme:1": 2}
        assert emulator.inbox("key-globex").users() == {"globex:1": 2}


async def push_as(client, tenant):
    TENANT.set(tenant)
    await client.send(f"{tenant}:1", MobilePush(title={"en": "Hi"}, ios_enabled=True))


async def submit(client, user):
    return await client.submit(user, MESSAGE)


async def keyed(client, user):
    return await client.send(user, MESSAGE, idempotency_key=user)


async def lingering(client, user):
    return await client.send(user, MESSAGE, timeout=5.0)


@SYNC_OR_ASYNC
@pytest.mark.parametrize("send", [submit, keyed, lingering])
@virtual
async def test_equal_messages_of_a_tenant_share_a_request_and_each_call_asks_once_for_an_attempt_whatever_the_way(
    send, is_async
):
    async def work(tenant):
        TENANT.set(tenant)
        await asyncio.gather(send(client, f"{tenant}:1"), send(client, f"{tenant}:2"))

    vault = Vault()
    service = FakeService(answer(429), answer(503, {"Retry-After": "1"}))
    options = {"claims": MemoryClaims(), "batching": Batching(linger=1.0 if send is lingering else 0.0)}
    async with client_of(service, api_key=vault.source(is_async=is_async), **options) as client:
        await asyncio.gather(*map(work, ("acme", "globex")))
        assert idle(client)
    assert pushed(service) == {f"key-{t}": {f"{t}:1", f"{t}:2"} for t in ("acme", "globex")}
    assert len(service.requests) == 4
    assert vault.asked == {"acme": 4, "globex": 4}


@virtual
async def test_campaigns_and_runs_use_the_key_of_their_caller_for_each_attempt():
    created = answer(200, {"Content-Type": "application/json"}, b'{"uuid": "1"}')

    async def work(tenant):
        TENANT.set(tenant)
        await client.broadcast([f"{tenant}:1"], MESSAGE)
        await client.create_campaign({"name": "n", "message": MESSAGE})

    vault = Vault()
    service = FakeService(answer(429), answer(429), then=created)
    async with client_of(service, api_key=vault.get_later) as client:
        await asyncio.gather(*map(work, ("acme", "globex")))
    keys = Counter(request.api_key for request in service.requests if request.accepted)
    assert keys == {"key-acme": 2, "key-globex": 2}
    assert vault.asked == {"acme": 3, "globex": 3}


# -- with_options ----------------------------------------------------------------------------------------------------


@virtual
async def test_views_with_their_own_keys_meet_in_a_request_only_if_the_keys_are_equal():
    service = FakeService()
    async with client_of(service) as client:
        await client.send("e", MESSAGE)
        acme, globex = (client.with_options(api_key=f"key-{name}") for name in ("acme", "globex"))
        await asyncio.gather(
            acme.send("a", MESSAGE),
            client.with_options(api_key="key-acme").send("b", MESSAGE),
            acme.with_options(timeout=5.0).send("c", MESSAGE),
            globex.send("d", MESSAGE),
            client.with_options(api_key=lambda: "key-acme").send("f", MESSAGE),
            globex.with_options(timeout=5.0).broadcast(["g"], MESSAGE),
        )
    assert sorted((request.api_key, request.user_ids) for request in service.requests) == [
        ("key-acme", ("a", "b", "f")),
        ("key-acme", ("c",)),
        ("key-globex", ("d",)),
        ("key-globex", ("g",)),
        ("secret-key", ("e",)),
    ]


@pytest.mark.parametrize("key", ["two words", lambda tenant: tenant])
def test_a_view_checks_its_key_as_the_client_does(key):
    client = AsyncPushClient("https://push.example", "secret-key")
    with pytest.raises(ConfigurationError, match=r"^api_key must be ") as of_view:
        client.with_options(api_key=key)
    with pytest.raises(ConfigurationError) as of_client:
        AsyncPushClient("https://push.example", key)
    assert str(of_view.value) == str(of_client.value)


# -- retries ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "policy", "is_async"),
    [
        (refused(), RetryPolicy.safe(), False),
        (answer(503, {"Retry-After": "2"}), RetryPolicy.safe(), True),
        (answer(500), RetryPolicy.at_least_once(), False),
    ],
)
@virtual
async def test_a_retry_asks_again_and_splits_by_key_if_some_keys_have_rotated(first, policy, is_async):
    service = FakeService(first)
    vault = Vault(lambda tenant: "key-new" if service.requests and tenant == "new" else "key-old")
    async with client_of(service, api_key=vault.source(is_async=is_async), retry=policy) as client:
        sends = [send_as(client, tenant, user) for user in "ab" for tenant in ("old", "new")]
        receipts = await asyncio.gather(*sends)
        stats = client.stats()
        assert idle(client)
    assert sorted((request.api_key, sorted(request.user_ids)) for request in service.requests) == [
        ("key-new", ["new:a", "new:b"]),
        ("key-old", ["new:a", "new:b", "old:a", "old:b"]),
        ("key-old", ["old:a", "old:b"]),
    ]
    assert [len(receipt.attempts) for receipt in receipts] == [2, 2, 2, 2]
    assert vault.asked == {"old": 4, "new": 4}
    assert stats.requests == 3
    assert stats.retries == 1
    assert stats.accepted == 4


@virtual
async def test_a_401_is_repeated_at_once_for_the_calls_whose_keys_have_rotated_and_for_no_others():
    service = FakeService(then=lambda request: answer(401 if request.api_key == "key-old" else 204))
    vault = Vault(lambda tenant: f"key-{tenant if service.requests else 'old'}")
    async with client_of(service, api_key=vault.get, retry=RetryPolicy.none()) as client:
        tasks = [start(send_as(client, name, user)) for name in ("new", "old", "newer") for user in "ab"]
        outcomes = [await outcome_of(task) for task in tasks]
        assert idle(client)
    kinds = [Receipt, Receipt, AuthenticationError, AuthenticationError, Receipt, Receipt]
    assert [type(outcome) for outcome in outcomes] == kinds
    assert [len(outcome.attempts) for outcome in outcomes] == [2, 2, 1, 1, 2, 2]
    assert pushed(service) == {"key-new": {"new:a", "new:b"}, "key-newer": {"newer:a", "newer:b"}}
    assert vault.asked == {"new": 4, "old": 4, "newer": 4}


# -- the first ask ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["future", "close", "task", "task at once", "future and task at once", "failure"])
@virtual
async def test_a_submitted_call_that_waits_for_its_key_can_end_before_it_comes(way):
    async def key():
        if way == "failure":
            raise ConnectionError
        return await never()

    service = FakeService()
    client = client_of(service, api_key=key, retry=RetryPolicy.none())
    before = asyncio.all_tasks()
    future = client.submit("a", MESSAGE)
    if "at once" not in way:
        await turns()
    if "task" in way:
        for task in asyncio.all_tasks() - before:
            task.cancel()
    if "future" in way:
        future.cancel()
    report = await client.aclose(drain=0.0)
    outcome = await outcome_of(future)
    assert isinstance(outcome, asyncio.CancelledError if "future" in way else NotSentError)
    assert [event.outcome for event in report.abandoned] == [Outcome.NOT_SENT]
    assert client.stats().not_sent == 1
    assert service.requests == []
    assert idle(client)


@virtual
async def test_a_callable_may_return_a_future_or_another_awaitable():
    async def later():
        return "of-a-coroutine"

    def key():
        if TENANT.get() == "acme":
            return later()
        future = asyncio.get_running_loop().create_future()
        future.set_result("of-a-future")
        return future

    service = FakeService()
    async with client_of(service, api_key=key) as client:
        await send_as(client, "globex")
        await send_as(client, "acme")
        await client.submit("acme:2", MESSAGE)
    assert [request.api_key for request in service.requests] == ["of-a-future", "of-a-coroutine", "of-a-coroutine"]


@virtual
async def test_a_call_that_has_ended_does_not_keep_its_callers_context():
    # The context may refer to the call, and the cycle collector does not know calls.
    async with client_of(FakeService(), api_key=lambda: "key") as client:
        future = client.submit("a", MESSAGE)
        call = future.call
        assert call.ask is not None
        await future
        assert call.ask is None


async def never():
    return await asyncio.get_running_loop().create_future()


async def test_the_debug_mode_of_asyncio_logs_no_key(caplog):
    async def key():
        await asyncio.sleep(0)
        return "s3cr3t-key-of-acme"

    loop = asyncio.get_running_loop()
    async with client_of(FakeService(refused()), api_key=key, retry=RetryPolicy.safe(initial_delay=0.01)) as client:
        loop.set_debug(True)
        loop.slow_callback_duration = 0.0
        await asyncio.gather(client.send("a", MESSAGE), client.submit("b", MESSAGE))
        loop.set_debug(False)
    assert "Executing" in caplog.text
    assert "s3cr3t" not in caplog.text


async def test_a_tenant_without_a_key_is_not_pushed_to_under_the_key_of_another():
    service = FakeService()
    async with client_of(service) as client:
        for of in (client, client.with_options(api_key="key-of-another")):
            with pytest.raises(ConfigurationError, match=r"^api_key must be .* got None$"):
                of.with_options(api_key={}.get("new"))
