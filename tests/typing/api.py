"""Every public name, used the way users would. mypy --strict and pyright read this; nothing runs it.

A line that must not type-check says so by an ignore: both fail if the ignore is not needed.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Unpack, assert_never, assert_type

import aiohttp
from obstore.store import S3Store
from opentelemetry.metrics import MeterProvider
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.trace import TracerProvider
from tenacity import retry_if_exception_type, stop_after_attempt, stop_after_delay, wait_fixed

import pushsdk
from pushsdk import *
from pushsdk.arrow import outcome_schema, plan_schema, push_batches
from pushsdk.claims import (
    Claim,
    ClaimStore,
    MemoryClaims,
    ObjectClaims,
    PostgresClaims,
    Put,
    RedisClaims,
    SqliteClaims,
    count_claimed,
)
from pushsdk.emulator import Emulator, Fault, ServiceLimits
from pushsdk.options import ClientOptions, RunOptions, SendingOptions
from pushsdk.otel import instrument
from pushsdk.spark import DirectoryClaims, SparkReport, broadcast
from pushsdk.spark import read_report as read_spark_report
from pushsdk.testing import *

version: str = __version__
nothing = pushsdk.Nothing  # type: ignore[attr-defined]

# --- what travels ---

button = ActionButton(label="Open", url="/a", click_action="DEEP_LINKING", key_vals={"k": "v"})
component = ActionComponent(action_id="open", url="/a", click_action="LATER_ADDED", key_vals={}, use_webview=False)
category = ActionCategory(type="PREDEFINED_CATEGORY", name="c", action_components=[component])
message = MobilePush(
    type="MOBILE_PUSH",
    ios_enabled=True,
    android_enabled=True,
    title={"en": "Hi"},
    body={"en": "{{ first_name | 'there' }}"},
    ttl=3600,
    large_icon_url=UNSET,
    key_vals={"k": "v"},
    priority="NORMAL",
    android_action_buttons=(button,),
    action_category=category,
)
campaign = CampaignRequest(
    name="spring",
    external_id="spring-1",
    segment=Segment(query="select id from users", primary_key="id"),
    schedule=Schedule(type="START_NOW", start_ts=0),
    message=message,
)
request = PushRequest(user_ids=["u"], message=message, custom_fields={"any": [1, None]})
assert_type(message.title, Mapping[str, str] | UnsetType)
kind: str = message.type
assert_type(request.message, MobilePush | UnsetType)

assert_type(message.replace(ttl=60), MobilePush)
assert_type(message.to_dict(), dict[str, Any])
typed_message: MobilePushDict = {"title": {"en": "Hi"}, "iosEnabled": True, "androidActionButtons": [{"label": "Open"}]}
typed_campaign: CampaignDict = {"name": "Spring", "schedule": {"type": "START_NOW"}, "message": typed_message}
parts: tuple[ActionButtonDict, ActionComponentDict] = ({"clickAction": "DEEP_LINKING"}, {"clickAction": "LATER_ADDED"})
part: ActionCategoryDict = {"type": "PREDEFINED_CATEGORY", "actionComponents": [parts[1], component]}
with_parts: MobilePushDict = {"androidActionButtons": [parts[0], button], "actionCategory": part, "priority": "HIGH"}
when: ScheduleDict = {"type": "START_NOW", "startTs": 0}
whom: SegmentDict = {"query": "SELECT id FROM users", "primaryKey": "id"}
with_structs: CampaignDict = {"message": message, "schedule": when, "segment": whom}
typed_request: PushRequestDict = {"userIds": ["u"], "message": message, "customFields": {"any": [1, None]}}
MobilePush(ttl="60")  # type: ignore[arg-type]
MobilePush(title="Hi")  # type: ignore[arg-type]
MobilePush(titel={"en": "Hi"})  # type: ignore[call-arg]
MobilePush({"en": "Hi"})  # type: ignore[arg-type, call-arg]
message.ttl = 1  # type: ignore[misc]
CampaignRequest(message={"title": {"en": "Hi"}})  # type: ignore[arg-type]
CampaignCreated()  # type: ignore[call-arg]


# --- the client ---


def tell(event: Event) -> None:
    """Every event is one of six."""
    match event:
        case AttemptEnded(attempt=attempt, users=users, number=number):
            assert_type((attempt, users, number), tuple[Attempt, int, int])
        case RetryScheduled(wait=seconds) | ClientPaused(seconds=seconds) | SendNotBegun(seconds_left=seconds):
            assert_type(seconds, float)
        case RequestSplit(users=parts, calls=calls, status=status):
            assert_type((parts, calls, status), tuple[int, int, int])
        case SendAbandoned(outcome=outcome, user_ids=user_ids):
            assert_type((outcome, user_ids), tuple[Outcome, tuple[str, ...]])
        case _:
            assert_never(event)


def clients(session: aiohttp.ClientSession, context: ssl.SSLContext, source: Callable[[], Awaitable[str]]) -> None:
    """Ways to make a client."""
    AsyncPushClient("https://push.example", lambda: "key", session=session)
    AsyncPushClient(
        base_url="https://push.example",
        api_key=source,
        retry=RetryPolicy(max_attempts=3, statuses={500: Outcome.REJECTED}, retry_on={408, 425}, unknown="retry"),
        timeout=Timeout(total=30, attempt=None, connect=timedelta(seconds=5)),
        batching=Batching(linger=0.01, max_users=500, max_bytes=1 << 20, split_on={413}),
        limits=Limits(in_flight=8, queued_users=1000, queued_bytes=1 << 20, when_full="raise"),
        rate=Rate(requests_per_second=10, users_per_second=None),
        proxy="http://proxy.example:3128",
        ssl=context,
        headers={"X-Team": "growth"},
        keepalive=4,
        allow_insecure=False,
        on_event=tell,
    )
    AsyncPushClient("https://push.example", b"key")  # type: ignore[arg-type]
    AsyncPushClient("https://push.example", "key", RetryPolicy())  # type: ignore[arg-type, call-arg]
    AsyncPushClient("https://push.example", "key", ssl=False)  # type: ignore[arg-type]
    Limits(when_full="drop")  # type: ignore[arg-type]


def policies() -> None:
    """Ways to say what is repeated."""
    assert_type(RetryPolicy.safe(max_attempts=2), RetryPolicy)
    assert_type(RetryPolicy.at_least_once(), RetryPolicy)
    strategies = stop_after_attempt(3) | stop_after_delay(9), wait_fixed(1), retry_if_exception_type(NotSentError)
    assert_type(RetryPolicy.from_tenacity(stop=strategies[0], wait=strategies[1], retry=strategies[2]), RetryPolicy)
    RetryPolicy.from_tenacity(stop=3)  # type: ignore[arg-type]


async def use() -> None:
    """Sends, campaigns, views, and the end."""
    async with AsyncPushClient("https://push.example", "key") as client:
        assert_type(client, AsyncPushClient)
        receipt = await client.send("u", message)
        assert_type(receipt, Receipt)
        assert_type((receipt.users, receipt.duplicates, receipt.requests), tuple[int, int, int])
        await client.send(["u", "v"], {"title": {"en": "Hi"}}, custom_fields={"n": 1}, timeout=5, retry=RetryPolicy())
        await client.create_campaign(typed_campaign)
        created = await client.create_campaign(campaign, timeout=60.0)
        assert_type(created, CampaignCreated)
        view = client.with_options(timeout=1.0, retry=RetryPolicy.none())
        assert_type(view, AsyncPushClient)
        client.with_options(api_key="key").with_options(api_key=lambda: "key")
        assert_type(view.stats(), ClientStats)
        assert_type(view.stats().throttled, int)
        await client.flush()
        report = await client.aclose(drain=5)
        assert_type(report, DrainReport)
        assert_type(report.abandoned, tuple[SendAbandoned, ...])
        await client.send(b"u", message)  # type: ignore[arg-type]
        await client.send("u", "Hi")  # type: ignore[arg-type]
        client.send("u", message)  # type: ignore[unused-coroutine]


async def without_tasks(client: AsyncPushClient, ids: list[str]) -> None:
    """Sends without a task for each."""
    future = client.submit("u", message, custom_fields={"n": 1}, timeout=5, retry=RetryPolicy())
    assert_type(future, asyncio.Future[Receipt])
    assert_type(await future, Receipt)
    assert_type(await asyncio.gather(*[client.submit(user, typed_message) for user in ids]), list[Receipt])
    client.submit(["u"], message)  # type: ignore[arg-type]


def mappings(client: PushClient, loaded: dict[str, Any], audience: Audience) -> None:
    """A dict in the call is compared with the typed dict; one whose values are Any, as from JSON, passes."""
    client.send("u", loaded)
    client.send_each([typed_request, {"userIds": ["u"], "message": {"title": {"en": "Hi"}}}, loaded])
    audience.personalize(loaded)
    client.send("u", request)  # type: ignore[arg-type]


def without_a_loop(message: MobilePush, campaign: CampaignRequest) -> None:
    with PushClient("https://push.example", "key", timeout=5, on_event=print, only_users={"a"}) as client:
        assert_type(client, PushClient)
        assert_type(client.send("u", message), Receipt)
        client.send((f"u{n}" for n in range(3)), {"title": {}}, custom_fields={"n": 1}, idempotency_key="k")
        stop = threading.Event()
        assert_type(client.broadcast(["u"], message, run=Path("r"), stop=stop, limit=3), BroadcastReport)
        assert_type(client.send_each([PushRequest(user_ids=["u"], message=message)]), BroadcastReport)
        until = datetime.now(UTC) + timedelta(hours=2)
        client.resume("r", not_after=until, on_progress=lambda progress: progress.rate)
        view = client.with_options(timeout=1.0, retry=RetryPolicy.none())
        assert_type(view, PushClient)
        assert_type(client.close(drain=5), DrainReport)


Users = Collection[str] | Iterator[str] | Audience


async def to_many(
    client: AsyncPushClient, plain: PushClient, ids: Users, stream: Users | AsyncIterator[str], texts: Iterable[str]
) -> None:
    """Any collection, iterator or audience, and not a lone str, which may be a file name."""
    await client.broadcast(stream, message)
    await client.broadcast("users.csv", message)  # type: ignore[arg-type]
    plain.broadcast(ids, message)
    plain.broadcast("users.csv", message)  # type: ignore[arg-type]
    plain.broadcast(texts, message)  # type: ignore[arg-type]


def with_our_defaults(options: ClientOptions, **run: Unpack[RunOptions]) -> BroadcastReport:
    sending: SendingOptions = {"rate": Rate(users_per_second=100), "proxy": None}
    sending["rate"] = 100  # type: ignore[typeddict-item]
    with PushClient(**options) as client:
        client.broadcast(["u"], MobilePush(), on_unknwon="resend")  # type: ignore[call-arg]
        return client.resume("r", **run)


async def handle(client: AsyncPushClient) -> str:
    """Errors, by what the caller can do next."""
    try:
        await client.send(["u", "v"], message)
    except PartialError as error:
        assert_type(error.outcomes, Mapping[str, Outcome])
        assert_type(error.users(Outcome.UNKNOWN), tuple[str, ...])
    except (ClaimStoreError, ClientClosedError, QueueFullError) as error:
        assert_type(error.retry_after, float | None)
    except (NotSentError, RateLimitedError) as error:
        assert_type((error.attempts[0].started, error.retry_after), tuple[float, float | None])
    except (AuthenticationError, PayloadTooLargeError, RejectedError) as error:
        assert_type((error.status, error.headers, error.body), tuple[int, Mapping[str, str], bytes])
    except OutcomeUnknownError as error:
        assert_type((error.status, error.external_id), tuple[int | None, str | None])
    except UnexpectedResponseError as error:
        assert_type((error.status, error.body, error.external_id), tuple[int, bytes, str | None])
    except (ConfigurationError, ValidationError, PushError) as error:
        assert_type((error.retryable, error.code), tuple[bool, str])
        assert_type((error.retry_delay(), error.retry_delay(1.0, max_delay=60.0)), tuple[float, float])
        assert_type((error.status, error.answer, error.request_id), tuple[int | None, str, str | None])
        assert_type((error.outcome, error.user_ids), tuple[Outcome, tuple[str, ...]])
        return told(error.outcome)
    return ""


def told(outcome: Outcome) -> str:
    """There are four outcomes, and each is a text."""
    match outcome:
        case Outcome.ACCEPTED | Outcome.REJECTED | Outcome.NOT_SENT | Outcome.UNKNOWN:
            return outcome
        case _:
            assert_never(outcome)


warning: type[UserWarning] = MessageWarning
error_is_a_value_error: ValueError = ValidationError("$.message.ttl: expected an int")
options: Mapping[str, Any] = {}


def advice(message: MobilePush) -> None:
    text: str = placeholder("first_name", "there")
    placeholders: list[Placeholder] = find_placeholders(text)
    assert_type(render(text, {"first_name": placeholders[0].name}), str)
    problems: list[Problem] = lint(message)
    assert_type(problems[0].path, str)


async def broadcasts(client: AsyncPushClient, message: MobilePush) -> None:
    def told(progress: Progress) -> None:
        assert_type((progress.rate, progress.eta), tuple[float, float | None])

    stop_policy = StopPolicy(rejected=0.1, max_outage=None)
    report = await client.broadcast(
        (user for user in ("a", "b")),
        message,
        run="spring.run",
        on_unknown="resend",
        stop_policy=stop_policy,
        on_progress=told,
    )
    assert_type(report, BroadcastReport)
    assert_type(report.answers, dict[str, int])
    assert_type((report.reasons, report.show_answers), tuple[dict[str, int], bool])
    audience = Audience.read("users.parquet", primary_key="user_id")
    assert_type(Audience.table(report, primary_key="id"), Audience)
    assert_type(audience.exclude("optout.csv", report.pushed(), ["ann"]), Audience)
    assert_type(audience.part(0, of=4), Audience)
    assert_type((report.excluded, audience.summary.excluded), tuple[int, int])
    assert_type((audience.summary, audience.columns), tuple[AudienceSummary, tuple[str, ...]])
    personal = Audience.query("FROM 'users.csv'").personalize(message, into="text")
    assert_type(personal, Personalized)
    await client.send_each(personal)
    results = await client.send_each(
        [PushRequest(user_ids=["a"], message=message), {"userIds": ["b"]}], stop=threading.Event()
    )
    resumed = await client.resume(Path("spring.run"), stop=asyncio.Event(), durable=True)
    for row in read_report("spring.run").rows(Outcome.UNKNOWN, Outcome.REJECTED):
        assert_type(row, Row)
        assert_type((row.user_id, row.outcome, row.status), tuple[str, Outcome, int | None])
    try:
        report.raise_for_failures()
    except BroadcastError as error:
        assert_type((error.outcome, error.report), tuple[Outcome, BroadcastReport | None])
    except (RunInUseError, RunPlanError) as error:
        assert_type((error.path, error.retryable), tuple[str, bool])
    except RunFileError as error:
        assert_type(error.path, str)
    assert_type((results.accepted + resumed.accepted_now, audience.is_file), tuple[int, bool])
    with open("report.csv", "w") as file:  # noqa: ASYNC230
        assert_type(report.write_csv(file), int)


# --- tests ---


def judge(request: FakeRequest) -> Fault | None:
    assert_type((request.user_ids, request.accepted), tuple[tuple[str, ...], bool])
    return Fault.status(429, headers={"Retry-After": "1"}) if "u" in request.user_ids else None


@virtual_time
async def test_without_a_socket(number: int) -> None:
    service = FakeService(
        Fault.refused(first=1), Fault.unreachable(probability=0.5), Fault.hang(accepted=True), then=judge, seed=7
    )
    async with service.client(retry=RetryPolicy.none(), timeout=5, on_event=tell) as client:
        assert_type(client, AsyncPushClient)
    assert_type(service.accepted("u"), int)
    assert_type(service.requests, list[FakeRequest])
    FakeService("accept")  # type: ignore[arg-type]


test_without_a_socket(7)
test_without_a_socket("7")  # type: ignore[arg-type]


class MyClaims(ClaimStore):
    """A store of the user's own."""

    async def put(self, puts: Sequence[Put], ttl: float) -> list[Claim | None]:
        assert_type([(put.key, put.claim, put.expected) for put in puts], list[tuple[str, Claim, tuple[str, ...]]])
        return [put.claim if put.may_replace(Claim("0" * 32, b"{}")) else None for put in puts]

    async def get(self, keys: Sequence[str]) -> list[Claim | None]:
        assert_type(await self.risks(), list[str])
        return [None for _ in keys]


def record_batches(message: MobilePush) -> None:
    batches: list[Any] = []
    outcomes = push_batches(
        batches,
        message,
        run="spring",
        claims=lambda: DirectoryClaims("claims"),
        custom_fields={"offer": 7},
        personal="placeholders",
        base_url="https://push.example",
        api_key=lambda: "key",
        stop_policy=StopPolicy.off(),
    )
    next(outcomes)
    plan_schema(True)
    outcome_schema()
    push_batches(batches, message, run="spring", claims=MemoryClaims())  # type: ignore[arg-type]


async def jobs_that_are_delivered_twice(message: MobilePush) -> None:
    stores: list[ClaimStore] = [
        MyClaims(claim_ttl=3600.0, timeout=1.0),
        MemoryClaims(claim_ttl=3600.0),
        DirectoryClaims(Path("claims"), durable=False, claim_ttl=3600.0, timeout=1.0),
        RedisClaims("redis://localhost", prefix="jobs:", claim_ttl=3600.0, timeout=1.0),
        PostgresClaims("postgresql://localhost/jobs", table="jobs.claims", claim_ttl=3600.0, timeout=1.0),
        ObjectClaims("s3://bucket/jobs", claim_ttl=3600.0, timeout=1.0),
        ObjectClaims(S3Store("bucket", prefix="jobs")),
    ]
    assert_type(stores[0].claim_ttl, float)
    assert_type(PostgresClaims.schema("jobs.claims"), str)
    async with (
        SqliteClaims(Path("claims.db"), durable=True, claim_ttl=3600.0, timeout=1.0) as claims,
        AsyncPushClient(claims=claims) as client,
    ):
        receipt = await client.send("user-1", message, idempotency_key="job-42")
        assert_type(receipt.already_accepted, int)
        await client.with_options(timeout=1.0).send("user-1", message, idempotency_key=None)
        await client.send("user-1", message, idempotency_key=42)  # type: ignore[arg-type]
    PushClient(claims="sqlite:claims.db")
    assert_type(await count_claimed(claims, older_than=3600), int)
    async for key, claim in claims.scan():
        assert_type((key, claim.token, claim.record), tuple[str, str, bytes])
    await stores[0].put([Put("0f" * 32, Claim("0f" * 16, b"{}"), expected=("1f" * 16,))], 3600.0)
    await stores[0].aclose()


def from_spark(df: Any, message: MobilePush, key: str) -> None:
    report = broadcast(
        df,
        message,
        Path("run"),
        primary_key="id",
        personal="placeholders",
        fields=["name"],
        tasks=64,
        claims=lambda: RedisClaims("redis://localhost"),
        api_key=lambda: key,
        rate=Rate(users_per_second=1000.0),
        on_progress=lambda progress: progress.accepted,
    )
    assert_type(report, SparkReport)
    assert_type(read_spark_report("run").tasks, int)
    assert_type(report.rows(), Iterator[Row])
    broadcast(df, message, "run", api_key=key)  # type: ignore[arg-type]


async def traced(tracers: TracerProvider, meters: MeterProvider, propagator: TextMapPropagator) -> None:
    async with instrument(AsyncPushClient(), tracer_provider=tracers, meter_provider=meters, propagate=True) as client:
        assert_type(client, AsyncPushClient)
    assert_type(instrument(PushClient(), propagate=propagator), PushClient)
    instrument(AsyncPushClient(), propagate="b3")  # type: ignore[arg-type]
    assert_type(instrument(PushClient(), sample_accepted=0.1), PushClient)


def test_with_the_service(push: PushInbox, push_env: PushInbox, push_emulator: Emulator) -> None:
    with push.fault(Fault.status(503, first=2), required=False) as fault, push.faults("flaky", seed=1):
        assert_type(fault, FaultContext)
        assert_type(fault.hits, int)
    sent = push.assert_sent("u", title="Hi", language="en", count=1)
    assert_type(sent, list[SentPush])
    assert_type(sent[0].title, dict[str, str])
    assert_type(push.wait_for("u", count=2, timeout=1), list[SentPush])
    push.wait_for(condition=lambda: push.campaigns and push.campaigns[0].request["name"] == "spring")
    push.limits = ServiceLimits(max_users=1)
    push.fault("hang")  # type: ignore[arg-type]
    push.advance(60)


async def test_awaiting(push: PushInbox) -> None:
    assert_type(await push.until(search="lang:de"), list[SentPush])
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        assert_type(runner, asyncio.Runner)
    stuck: AssertionError = HangError()
    raise stuck
