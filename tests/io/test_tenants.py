"""Several tenants on one client: each user is pushed under the key that its caller's callable returned last."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any

import pytest
from support.fake_service import MESSAGE, OTHER, FakeService, answer, client_of, hang, idle, outcome_of, refused, start
from support.virtual_time import now, turns, virtual

from pushsdk import (
    AsyncPushClient,
    AuthenticationError,
    Batching,
    ConfigurationError,
    Limits,
    MobilePush,
    NotSentError,
    Outcome,
    OutcomeUnknownError,
    QueueFullError,
    Receipt,
    RejectedError,
    RetryPolicy,
    Timeout,
)
from pushsdk.claims import MemoryClaims
from pushsdk.emulator import Emulator

TENANT = ContextVar("TENANT", default="nobody")
HELLO = MobilePush(title={"en": "Hi"}, ios_enabled=True)
NONE = RetryPolicy.none()
Send = Callable[[AsyncPushClient, str], Awaitable[Receipt]]


class Vault:
    """The keys of the tenants, which rotate, and how often each was asked for."""

    def __init__(self) -> None:
        self.versions: Counter[str] = Counter()
        self.asked: Counter[str] = Counter()
        # What the callable raises for these tenants.
        self.errors: dict[str, Exception] = {}

    def key_of(self, tenant: str) -> str:
        return f"key-{tenant}-{self.versions[tenant]}"

    def get(self) -> str:
        tenant = TENANT.get()
        self.asked[tenant] += 1
        if tenant in self.errors:
            raise self.errors[tenant]
        return self.key_of(tenant)

    async def get_later(self) -> str:
        await asyncio.sleep(0.01)
        return self.get()


async def send_as(client: AsyncPushClient, tenant: str, user: str, **options: Any) -> Receipt:
    TENANT.set(tenant)
    return await client.send(f"{tenant}:{user}", MESSAGE, **options)


def pushed(service: FakeService) -> dict[str, set[str]]:
    """The users that were pushed under each key."""
    keys = defaultdict(set)
    for request in service.requests:
        if request.accepted:
            keys[request.key].update(request.users)
    return dict(keys)


def sources(vault: Vault) -> list[Any]:
    return [vault.get, vault.get_later]


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_two_tenants_that_send_an_equal_message_at_once_are_pushed_under_their_keys(kind: str) -> None:
    async def key() -> str:
        return f"key-{TENANT.get()}"

    source: Any = key if kind == "async" else lambda: f"key-{TENANT.get()}"

    async def handler(tenant: str) -> None:
        TENANT.set(tenant)
        await push.send(f"{tenant}:1", HELLO)

    async with Emulator() as emulator, AsyncPushClient(emulator.base_url, source) as push:
        for _ in range(2):  # over a new connection, and over an idle one
            await asyncio.gather(*map(handler, ("acme", "globex")))
        assert emulator.inbox("key-acme").users() == {"acme:1": 2}
        assert emulator.inbox("key-globex").users() == {"globex:1": 2}


@pytest.mark.parametrize("number", [0, 1], ids=["sync", "async"])
@virtual
async def test_equal_messages_of_one_tenant_share_a_request_and_each_call_asks_once(number: int) -> None:
    vault, service = Vault(), FakeService()
    async with client_of(service, api_key=sources(vault)[number]) as client:
        await asyncio.gather(*(send_as(client, tenant, user) for user in "abc" for tenant in ("acme", "globex")))
        assert idle(client)
    assert len(service.requests) == 2
    assert pushed(service) == {
        f"key-{tenant}-0": {f"{tenant}:{user}" for user in "abc"} for tenant in ("acme", "globex")
    }
    assert vault.asked == {"acme": 3, "globex": 3}


async def submit(client: AsyncPushClient, user: str) -> Receipt:
    return await client.submit(user, MESSAGE)


async def keyed(client: AsyncPushClient, user: str) -> Receipt:
    return await client.send(user, MESSAGE, idempotency_key=user)


async def with_timeout(client: AsyncPushClient, user: str) -> Receipt:
    return await client.send(user, MESSAGE, timeout=5.0)


@pytest.mark.parametrize("number", [0, 1], ids=["sync", "async"])
@pytest.mark.parametrize("send", [submit, keyed, with_timeout])
@virtual
async def test_every_way_to_send_uses_the_key_of_its_caller(send: Send, number: int) -> None:
    async def work(tenant: str) -> None:
        TENANT.set(tenant)
        await asyncio.gather(send(client, f"{tenant}:1"), send(client, f"{tenant}:2"))

    vault, service = Vault(), FakeService(answer(429), answer(503, {"Retry-After": "1"}))
    async with client_of(service, api_key=sources(vault)[number], claims=MemoryClaims()) as client:
        await asyncio.gather(*map(work, ("acme", "globex")))
        assert idle(client)
    assert pushed(service) == {f"key-{t}-0": {f"{t}:1", f"{t}:2"} for t in ("acme", "globex")}
    assert (len(service.requests), vault.asked) == (4, {"acme": 4, "globex": 4})


@virtual
async def test_campaigns_and_runs_use_the_key_of_their_caller_for_each_attempt() -> None:
    campaign: Any = {"name": "n", "segment": {"query": "q", "primaryKey": "id"}, "schedule": {"type": "START_NOW"}}

    created = answer(200, {"Content-Type": "application/json"}, b'{"uuid": "1"}')

    async def work(tenant: str) -> None:
        TENANT.set(tenant)
        await client.broadcast([f"{tenant}:1"], MESSAGE)
        await client.create_campaign({**campaign, "message": MESSAGE})

    vault, service = Vault(), FakeService(answer(429), answer(429), then=created)
    async with client_of(service, api_key=vault.get_later) as client:
        await asyncio.gather(*map(work, ("acme", "globex")))
    keys = [request.key for request in service.requests if request.accepted]
    assert sorted(keys) == ["key-acme-0", "key-acme-0", "key-globex-0", "key-globex-0"]
    assert vault.asked == {"acme": 3, "globex": 3}


# -- with_options ----------------------------------------------------------------------------------------------------


@virtual
async def test_views_with_their_own_keys_meet_in_a_request_only_if_the_keys_are_equal() -> None:
    service = FakeService()
    async with client_of(service) as client:
        acme, globex = (client.with_options(api_key=f"key-{name}") for name in ("acme", "globex"))
        await asyncio.gather(
            acme.send("a", MESSAGE),
            client.with_options(api_key="key-acme").send("b", MESSAGE),
            acme.with_options(timeout=5.0).send("c", MESSAGE),
            globex.send("d", MESSAGE),
            client.send("e", MESSAGE),
            client.with_options(api_key=lambda: "key-acme").send("f", MESSAGE),
        )
    assert sorted((request.key, request.users) for request in service.requests) == [
        ("key-acme", ("a", "b", "f")),
        ("key-acme", ("c",)),
        ("key-globex", ("d",)),
        ("secret-key", ("e",)),
    ]


@virtual
async def test_a_view_with_its_own_key_uses_it_for_runs_and_campaigns_too() -> None:
    service = FakeService(answer(429))
    async with client_of(service) as client:
        await client.with_options(api_key="key-acme").with_options(timeout=5.0).broadcast(["a"], MESSAGE)
    assert {request.key for request in service.requests} == {"key-acme"}


@pytest.mark.parametrize("key", ["", "two words", b"bytes", lambda tenant: tenant])
def test_a_view_checks_its_key_as_the_client_does(key: Any) -> None:
    client = AsyncPushClient("https://push.example", "secret-key")
    with pytest.raises(ConfigurationError, match=r"^api_key must be ") as of_view:
        client.with_options(api_key=key)
    with pytest.raises(ConfigurationError) as of_client:
        AsyncPushClient("https://push.example", key)
    assert str(of_view.value) == str(of_client.value)


# -- retries ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [0, 1], ids=["sync", "async"])
@pytest.mark.parametrize(
    ("first", "policy"),
    [
        (refused(), RetryPolicy.safe()),
        (answer(503, {"Retry-After": "2"}), RetryPolicy.safe()),
        (answer(500), RetryPolicy.at_least_once()),
        (answer(429), RetryPolicy.safe()),
    ],
)
@virtual
async def test_a_retry_asks_again_and_splits_by_key_if_some_keys_have_rotated(
    first: Any, policy: RetryPolicy, number: int
) -> None:
    vault, service = Vault(), FakeService(first)
    stage = ContextVar("stage", default="old")

    def key() -> str:
        vault.asked[stage.get()] += 1
        return "key-new" if service.requests and stage.get() == "new" else "key-old"

    async def later() -> str:
        return key()

    async def send(user: str, which: str) -> Receipt:
        stage.set(which)
        return await client.send(user, MESSAGE)

    async with client_of(service, api_key=[key, later][number], retry=policy) as client:
        receipts = await asyncio.gather(send("a", "old"), send("b", "new"), send("c", "old"), send("d", "new"))
        stats = client.stats()
        assert idle(client)
    assert sorted((request.key, request.users) for request in service.requests) == [
        ("key-new", ("b", "d")),
        ("key-old", ("a", "b", "c", "d")),
        ("key-old", ("a", "c")),
    ]
    assert [len(receipt.attempts) for receipt in receipts] == [2, 2, 2, 2]
    assert vault.asked == {"old": 4, "new": 4}
    assert (stats.requests, stats.retries, stats.accepted) == (3, 1, 4)


@virtual
async def test_split_calls_make_no_more_attempts_than_the_policy_allows_in_total() -> None:
    vault, service = Vault(), FakeService(then=answer(429))
    tries = ContextVar[list[str]]("tries")

    async def send(tenant: str) -> RejectedError:
        tries.set([tenant] * 2 + ["one", "two"])
        TENANT.set("same")
        with pytest.raises(RejectedError) as error:
            await client.send(tenant, MESSAGE)
        return error.value

    def key() -> str:
        return "key-same" if len(tries.get()) == 4 and not tries.get().append("x") else vault.key_of(tries.get()[0])

    async with client_of(service, api_key=key, retry=RetryPolicy.safe(max_attempts=3)) as client:
        errors = await asyncio.gather(*map(send, ("acme", "globex")))
    assert [len(error.attempts) for error in errors] == [3, 3]
    assert Counter(request.key for request in service.requests) == {"key-same": 1, "key-acme-0": 2, "key-globex-0": 2}


@virtual
async def test_calls_of_which_one_has_no_key_at_the_retry_go_on_without_it() -> None:
    vault, service = Vault(), FakeService(refused())
    retries = RetryPolicy.safe(max_attempts=3)

    def key() -> str:
        vault.get()
        if service.requests and TENANT.get() == "acme":
            raise ConnectionError
        return "key"

    async with client_of(service, api_key=key, retry=retries) as client:
        acme, globex = start(send_as(client, "acme", "1")), start(send_as(client, "globex", "1"))
        assert isinstance(await outcome_of(globex), Receipt)
        error = await outcome_of(acme)
        assert idle(client)
    assert isinstance(error, NotSentError)
    assert "callable failed: ConnectionError" in str(error)
    assert [attempt.outcome for attempt in error.attempts] == [Outcome.NOT_SENT] * 3
    assert service.users() == {"globex:1": 1}
    assert vault.asked == {"acme": 3, "globex": 2}


@virtual
async def test_a_call_whose_callable_recovers_at_a_later_attempt_is_accepted() -> None:
    vault, service = Vault(), FakeService()
    vault.errors["acme"] = ConnectionError()
    async with client_of(service, api_key=vault.get) as client:
        acme, globex = start(send_as(client, "acme", "1")), start(send_as(client, "globex", "1"))
        await turns()
        vault.errors.clear()
        receipts = await asyncio.gather(acme, globex)
    assert [[attempt.status for attempt in receipt.attempts] for receipt in receipts] == [[None, 204], [204]]
    assert pushed(service) == {"key-acme-0": {"acme:1"}, "key-globex-0": {"globex:1"}}


@virtual
async def test_a_callable_that_hangs_at_the_retry_ends_its_call_and_no_other() -> None:
    service = FakeService(refused())

    async def key() -> str:
        if service.requests and TENANT.get() == "acme":
            await asyncio.get_running_loop().create_future()
        return "key"

    async with client_of(service, api_key=key, retry=RetryPolicy.safe(max_attempts=2)) as client:
        patience = Timeout(total=5.0, attempt=1.0)
        acme, globex = (start(send_as(client, name, "1", timeout=patience)) for name in ("acme", "globex"))
        assert isinstance(await outcome_of(globex), Receipt)
        error = await outcome_of(acme)
        assert idle(client)
    assert isinstance(error, NotSentError)
    assert "it did not return within the attempt timeout 1 s" in str(error)
    assert service.users() == {"globex:1": 1}


@virtual
async def test_a_401_is_repeated_at_once_for_the_calls_whose_keys_have_rotated_and_for_no_others() -> None:
    vault = Vault()
    service = FakeService(then=lambda request: answer(401 if request.key == "key-old" else 204))

    def key() -> str:
        vault.get()
        rotated = TENANT.get() if service.requests else "old"
        return f"key-{rotated}"

    async with client_of(service, api_key=key, retry=NONE) as client:
        tasks = [start(send_as(client, name, user)) for name in ("new", "old", "newer") for user in "ab"]
        outcomes = [await outcome_of(task) for task in tasks]
        assert idle(client)
    kinds = [type(outcome) for outcome in outcomes]
    assert kinds == [Receipt] * 2 + [AuthenticationError] * 2 + [Receipt] * 2
    assert [len(outcome.attempts) for outcome in outcomes] == [2, 2, 1, 1, 2, 2]
    assert pushed(service) == {"key-new": {"new:a", "new:b"}, "key-newer": {"newer:a", "newer:b"}}
    assert vault.asked == {"new": 4, "old": 4, "newer": 4}


@virtual
async def test_calls_without_a_new_key_are_retried_after_a_401_if_the_policy_retries_it() -> None:
    service = FakeService(answer(401), answer(204), answer(204))

    def key() -> str:
        return f"key-{TENANT.get() if service.requests else 'old'}"

    policy = RetryPolicy.safe(retry_on={401}, max_attempts=2)
    async with client_of(service, api_key=key, retry=policy) as client:
        before = now()
        await asyncio.gather(send_as(client, "new", "1"), send_as(client, "old", "1"))
        assert now() > before
    assert pushed(service) == {"key-new": {"new:1"}, "key-old": {"old:1"}}


@virtual
async def test_what_a_400_splits_asks_again_for_each_of_its_requests() -> None:
    vault = Vault()
    service = FakeService(then=lambda request: answer(400 if "acme:bad" in request.users else 204))
    async with client_of(service, api_key=vault.get) as client:
        tasks = [start(send_as(client, "acme", user)) for user in ("good", "bad")]
        await turns(2)
        vault.versions["acme"] += 1
        outcomes = [await outcome_of(task) for task in tasks]
    assert [type(outcome) for outcome in outcomes] == [Receipt, RejectedError]
    assert pushed(service) == {"key-acme-1": {"acme:good"}}
    assert vault.asked == {"acme": 4}


@virtual
async def test_keyed_calls_that_split_by_key_claim_and_settle_their_own_users() -> None:
    claims, service = MemoryClaims(), FakeService(answer(500))

    def key() -> str:
        return f"key-{TENANT.get() if service.requests else 'same'}"

    async with client_of(service, api_key=key, claims=claims, retry=RetryPolicy.at_least_once()) as client:

        async def deliver(tenant: str) -> Receipt:
            return await send_as(client, tenant, "1", idempotency_key=tenant)

        receipts = await asyncio.gather(*map(deliver, ("acme", "globex")))
        again = await asyncio.gather(*map(deliver, ("acme", "globex")))
    assert [receipt.already_accepted for receipt in receipts + again] == [0, 0, 1, 1]
    assert pushed(service) == {"key-acme": {"acme:1"}, "key-globex": {"globex:1"}}


@pytest.mark.parametrize("when", [0.0, 0.005])
@virtual
async def test_a_batch_that_is_cancelled_after_its_split_by_key_settles_every_call(when: float) -> None:
    service = FakeService(refused(), then=hang())

    def key() -> str:
        return f"key-{TENANT.get() if service.requests else 'same'}"

    retry = RetryPolicy.from_tenacity(wait=lambda state: 0.5)
    async with client_of(service, api_key=key, limits=Limits(in_flight=1), retry=retry) as client:
        tasks = [start(send_as(client, tenant, "1")) for tenant in ("acme", "globex")]
        await asyncio.sleep(0.5 + when)
        await turns(12)
        for task in tuple(client._lifetime.engine.queue.batch_sender.tasks.values()):
            task.cancel()
        outcomes = [await outcome_of(task) for task in tasks]
        assert idle(client)
    assert [type(outcome) for outcome in outcomes] == [OutcomeUnknownError, NotSentError]


# -- the first ask ---------------------------------------------------------------------------------------------------


@virtual
async def test_a_call_that_waits_for_its_key_is_queued_and_its_client_drains_it() -> None:
    vault, service = Vault(), FakeService()
    client = client_of(service, api_key=vault.get_later)
    call, future = start(send_as(client, "acme", "1")), client.submit("nobody:1", OTHER)
    await turns()
    assert (client.stats().queued_users, client.stats().in_flight) == (2, 0)
    report = await client.aclose()
    assert isinstance(await outcome_of(call), Receipt)
    assert isinstance(await future, Receipt)
    assert sorted(report.accepted) == ["acme:1", "nobody:1"]


@virtual
async def test_calls_that_wait_for_their_keys_count_as_queued_for_the_limits() -> None:
    async with client_of(FakeService(), api_key=Vault().get_later, limits=Limits(queued_users=2)) as client:
        futures = [client.submit(user, MESSAGE) for user in "ab"]
        with pytest.raises(QueueFullError):
            client.submit("c", MESSAGE)
        await asyncio.gather(*futures)
        assert idle(client)


async def never() -> str:
    return await asyncio.get_running_loop().create_future()


@pytest.mark.parametrize("way", ["future", "close", "task"])
@virtual
async def test_a_submitted_call_that_waits_for_its_key_can_be_cancelled(way: str) -> None:
    service = FakeService()
    client = client_of(service, api_key=never)
    before = asyncio.all_tasks()
    future = client.submit("a", MESSAGE)
    await turns()
    if way == "future":
        future.cancel()
    elif way == "task":
        for task in asyncio.all_tasks() - before:
            task.cancel()
    report = await client.aclose(drain=0.0)
    outcome = await outcome_of(future)
    assert isinstance(outcome, asyncio.CancelledError if way == "future" else NotSentError)
    assert [event.outcome for event in report.abandoned] == [Outcome.NOT_SENT]
    assert (client.stats().not_sent, service.requests) == (1, [])
    assert idle(client)


@virtual
async def test_a_submitted_call_that_is_cancelled_as_its_key_arrives_is_not_sent() -> None:
    service = FakeService()
    keys = asyncio.get_running_loop().create_future()

    async def key() -> str:
        return await asyncio.shield(keys)

    async with client_of(service, api_key=key) as client:
        for rounds in range(6):
            keys = asyncio.get_running_loop().create_future()
            future = client.submit("a", MESSAGE)
            await turns()
            keys.set_result("key")
            await turns(rounds)
            sent = len(service.requests)
            future.cancel()
            await asyncio.sleep(1.0)
            assert len(service.requests) == sent
            service.requests.clear()
        assert idle(client)


@virtual
async def test_a_submitted_call_whose_async_callable_fails_ends_as_one_of_send() -> None:
    vault = Vault()
    vault.errors["nobody"] = ConnectionError()
    async with client_of(FakeService(), api_key=vault.get_later, retry=NONE) as client:
        with pytest.raises(NotSentError, match="callable failed: ConnectionError"):
            await client.submit("a", MESSAGE)
        assert idle(client)


@virtual
async def test_a_cancelled_call_that_waits_for_its_key_is_not_sent_and_says_so() -> None:
    service = FakeService()
    async with client_of(service, api_key=never) as client:
        task = asyncio.create_task(client.send("a", MESSAGE))
        await turns()
        task.cancel()
        with pytest.raises(asyncio.CancelledError) as error:
            await task
        assert "the outcome of the cancelled call to 1 user is NOT_SENT" in str(error.value.__notes__)
        assert idle(client)


@virtual
async def test_calls_of_tenants_linger_apart() -> None:
    vault, service = Vault(), FakeService()
    async with client_of(service, api_key=vault.get, batching=Batching(linger=1.0)) as client:
        await asyncio.gather(*(send_as(client, tenant, user) for user in "ab" for tenant in ("acme", "globex")))
    assert len(service.requests) == 2
    assert pushed(service).keys() == {"key-acme-0", "key-globex-0"}


@virtual
async def test_a_callable_may_return_a_future() -> None:
    def key() -> asyncio.Future[str]:
        future = asyncio.get_running_loop().create_future()
        future.set_result("some-key")
        return future

    service = FakeService()
    async with client_of(service, api_key=key) as client:
        await client.send("user", MESSAGE)
    assert service.requests[0].key == "some-key"


@virtual
async def test_a_callable_that_is_no_coroutine_function_may_return_an_awaitable() -> None:
    vault, service = Vault(), FakeService()
    async with client_of(service, api_key=lambda: vault.get_later()) as client:
        await send_as(client, "acme", "1")
        TENANT.set("globex")
        await client.submit("globex:1", MESSAGE)
    assert pushed(service) == {"key-acme-0": {"acme:1"}, "key-globex-0": {"globex:1"}}


async def test_the_debug_mode_of_asyncio_logs_no_key(caplog: pytest.LogCaptureFixture) -> None:
    async def key() -> str:
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


@virtual
async def test_a_call_that_has_ended_does_not_keep_its_callers_context() -> None:
    # The context may refer to the call, and the cycle collector does not know calls.
    async with client_of(FakeService(), api_key=lambda: "key") as client:
        future = client.submit("a", MESSAGE)
        call = future.call  # type: ignore[attr-defined]
        assert call.ask is not None
        await future
        assert call.ask is None


@virtual
async def test_what_a_callable_sets_in_its_context_stays_there() -> None:
    def key() -> str:
        TENANT.set("of the callable")
        return "key"

    async with client_of(FakeService(), api_key=key) as client:
        await client.send("a", MESSAGE)
    assert TENANT.get() == "nobody"


@virtual
async def test_a_submit_whose_task_is_cancelled_before_its_first_step_ends() -> None:
    async def key() -> str:
        await asyncio.sleep(1.0)
        return "some-key"

    async with client_of(FakeService(), api_key=key) as client:
        send, dropped = client.submit("user", MESSAGE), client.submit("user", MESSAGE)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        dropped.cancel()
        with pytest.raises(NotSentError):
            await send
        await asyncio.sleep(2.0)
        assert idle(client)
        assert client.stats().not_sent == 2


@virtual
async def test_a_retry_whose_calls_split_by_key_costs_the_budget_nothing() -> None:
    tenant, asked = ContextVar[str]("tenant"), Counter[str]()

    def key() -> str:
        asked[tenant.get()] += 1
        return "shared-key" if asked[tenant.get()] == 1 else f"key-{tenant.get()}"

    service = FakeService(then=lambda request: answer(429) if request.key == "shared-key" else answer())
    async with client_of(service, api_key=key) as client:
        sends = []
        for name in ("acme", "globex"):
            tenant.set(name)
            sends.append(start(client.send(name, MESSAGE)))
        await asyncio.gather(*sends)
        assert client.stats().retry_tokens == 500
    assert service.users() == {"acme": 1, "globex": 1}
