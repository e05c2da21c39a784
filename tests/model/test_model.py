"""Random tenants and users of a random client before a random service, on virtual time; a judge looks at the truth."""

import asyncio
from collections import Counter
from contextvars import ContextVar
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.fake_service import (
    FakeService,
    answer,
    client_of,
    fails,
    idle,
)
from support.model_settings import FAULTS as COMMON
from support.model_settings import LONG, SHORT, mostly
from support.virtual_time import run, turns

from pushsdk import Batching, Limits, Outcome, PartialError, Rate, RetryPolicy, SendAbandoned, Timeout
from pushsdk._core.outcome import Failure, join
from pushsdk._core.rate_limit import CAPACITY, THROTTLED_COST

pytestmark = pytest.mark.usefixtures("quiet")

GRACE = 0.010

FAULTS = {
    **COMMON,
    "401": answer(401),
    "certificate": fails(Failure.CERTIFICATE),
}
# Rare: hardly anything happens after them.
PAUSES = {
    "429 with a far Retry-After": answer(429, {"Retry-After": "100"}),
    "429 with a Retry-After": answer(429, {"Retry-After": "20"}),
}
REFUSALS = (302, 400, 401, 413, 429)
MESSAGES = [
    {"title": {"en": "first"}},
    {"title": {"en": "second"}, "collapseId": "news"},
    {"title": {"en": "hopeless"}},
]
POLICIES = {
    "safe": RetryPolicy.safe(),
    "patient": RetryPolicy.safe(initial_delay=1.0, max_retry_after=1.5),
    "none": RetryPolicy.none(),
    "collapsible": RetryPolicy.collapsible(),
    "at_least_once": RetryPolicy.at_least_once(),
}
SHARED_USERS = ["anna", "ben"]


class Deed(NamedTuple):
    """One call: its start, users, message, style, and the time of its cancellation."""

    at: float
    users: int
    shared_user: str | None
    message: int
    style: int
    cancel_after: float | None
    tenant: str


class Style(NamedTuple):
    """The options of calls: with equal ones they can meet in a request."""

    policy: str
    total: float | None
    attempt: float | None


class World(NamedTuple):
    """One example."""

    deeds: list[Deed]
    styles: list[Style]
    faults: list[str]
    takes: int
    culprits: frozenset[int]
    batching: Batching
    limits: Limits
    rate: Rate
    tokens: int
    close_at: float
    drain: float
    source: str
    keys: list[str]
    later_keys: list[str]


TIMES = mostly(0.0, 0.005, 0.01, 0.02, 0.1, 0.5, 1.0, 3.0)
DEEDS = st.builds(
    Deed,
    at=TIMES,
    users=mostly(1, 2, 5),
    shared_user=mostly(None, *SHARED_USERS),
    message=mostly(0, 1, 2),
    style=mostly(0, 1, 2),
    cancel_after=mostly(None, 0.0, 0.005, 0.02, 0.03, 0.1, 1.0, 3.0),
    tenant=mostly("acme", "globex"),
)
STYLES = st.builds(
    Style,
    policy=st.sampled_from(list(POLICIES)),
    total=mostly(30.0, None, 5.0, 0.5, 0.05, 0.015),
    attempt=mostly(10.0, None, 0.3),
)
PARTS = {
    "deeds": st.lists(DEEDS, min_size=2, max_size=16),
    "styles": st.lists(STYLES, min_size=3, max_size=3),
    "faults": st.lists(st.sampled_from([*list(FAULTS) * 3, *PAUSES]), min_size=1, max_size=20),
    "takes": mostly(1000, 4, 2, 1),
    "culprits": st.frozensets(st.integers(0, 15), max_size=2),
    "batching": st.builds(
        Batching,
        linger=mostly(0.0, 0.01, 0.5),
        max_users=mostly(1000, 6),
        max_bytes=mostly(1_000_000, 300),
        split_on=mostly(frozenset({413, 400, 422}), frozenset()),
    ),
    "limits": st.builds(
        Limits,
        in_flight=st.sampled_from([64, 1, 2]),
        queued_users=mostly(100_000, 1, 3),
        queued_bytes=mostly(1_000_000, 100),
        when_full=mostly("wait", "raise"),
    ),
    "rate": mostly(Rate(), Rate(requests_per_second=10.0), Rate(users_per_second=5.0)),
    "tokens": mostly(CAPACITY, 12, 0),
    "close_at": mostly(60.0, 0.005, 0.03, 1.0),
    "drain": st.sampled_from([0.0, 0.02, 5.0]),
    "source": st.sampled_from(["fixed", "sync", "async"]),
    "keys": st.lists(mostly("usual", "rotated", "raises", "slow", "hangs"), max_size=5),
    "later_keys": st.lists(
        st.sampled_from(["usual", "usual", "rotated", "rotated", "raises", "slow", "hangs"]), min_size=9
    ),
}
WORLDS = st.builds(World, **PARTS)
# Merged calls of few tenants, whose requests are retried.
CROWDS = st.builds(
    World,
    **{
        **PARTS,
        "deeds": st.lists(
            st.builds(
                Deed,
                at=mostly(0.0, 0.01, 0.4),
                users=mostly(1, 2),
                shared_user=st.none(),
                message=st.just(0),
                style=st.just(0),
                cancel_after=mostly(None, None, 0.02, 1.0),
                tenant=mostly("acme", "globex"),
            ),
            min_size=2,
            max_size=8,
        ),
        "faults": st.lists(mostly("refused", "401", "429", *FAULTS), max_size=12),
        "close_at": mostly(60.0, 1.0),
        "source": st.sampled_from(["sync", "async"]),
    },
)
# Requests that are split, whose calls expire at different times.
SPLITS = st.builds(
    World._replace,
    CROWDS,
    styles=st.just([Style("safe", 5.0, None)]),
    faults=st.lists(st.sampled_from(["accepted", "hang"]), min_size=1, max_size=4),
    takes=mostly(2, 1000),
    culprits=st.just({0}),
    batching=st.just(Batching(linger=0.5)),
    close_at=st.just(60.0),
    source=st.just("fixed"),
)
CALL = ContextVar("CALL")


def user_of(call, number):
    """Long enough for ids to be most of a request: only then halving helps."""
    return f"user-{number}-of-the-call-number-{call}"


class CallRecord:
    """One call, and what its caller was told."""

    def __init__(self, number, deed, world):
        # Not after the close: they would only hear that it is closed.
        self.deed = deed._replace(at=min(deed.at, 0.99 * world.close_at))
        self.style = world.styles[deed.style]
        self.title = MESSAGES[deed.message]["title"]["en"]
        self.users = [user_of(number, user) for user in range(deed.users)]
        if deed.shared_user is not None:
            self.users[0] = deed.shared_user
        self.started = self.ended = -1.0
        self.times = 0
        self.result = None
        # What its callable returned, with None for each ask, and how often it was asked.
        self.keys = ["secret-key"]
        self.asked = 0

    async def call(self, client):
        await asyncio.sleep(self.deed.at)
        CALL.set(self)
        loop = asyncio.get_running_loop()
        self.started = loop.time()
        total = self.style.total
        attempt = self.style.attempt
        patience = Timeout(total=total, attempt=attempt)
        users = self.users[0] if len(self.users) == 1 else self.users
        send = client.send(users, MESSAGES[self.deed.message], timeout=patience, retry=POLICIES[self.style.policy])
        try:
            self.result = await send
        except BaseException as error:
            self.result = error
            raise
        finally:
            self.times += 1
            self.ended = loop.time()

    async def live(self, client):
        task = asyncio.ensure_future(self.call(client))
        leave_at = None if self.deed.cancel_after is None else self.deed.at + self.deed.cancel_after
        await asyncio.wait([task], timeout=leave_at)
        task.cancel()
        await asyncio.wait([task])
        if task.cancelled():
            self.result = asyncio.CancelledError()
        else:
            task.exception()

    def keys_of(self, request):
        """The key that was returned last; the parts of a split call ask and leave each for itself."""
        return self.keys[-1:] if {*self.users} <= {*request.user_ids} else self.keys

    @property
    def cancelled(self):
        return isinstance(self.result, asyncio.CancelledError)

    @property
    def outcomes(self):
        """Return what the caller knows; nothing if it was cancelled."""
        if self.cancelled:
            return {}
        if isinstance(self.result, PartialError):
            return dict(self.result.outcomes)
        return dict.fromkeys(self.users, self.result.outcome)


def source_of(world):
    """The api_key of the client. A callable has a plan for the first ask of a call, and one for the others."""
    plans = [list(world.keys), list(world.later_keys)]

    def step_of(record):
        plan = plans[record.asked > 0]
        record.asked += 1
        record.keys.append(None)
        return plan.pop(0) if plan else "usual"

    def answered(record, step):
        if step == "raises":
            raise ConnectionError
        record.keys.append(f"key-{record.deed.tenant}{'-new' if step == 'rotated' else ''}")
        return record.keys[-1]

    def key():
        return answered(record := CALL.get(), step_of(record))

    async def later():
        step = step_of(record := CALL.get())
        if step in ("slow", "hangs"):
            await asyncio.sleep(0.05 if step == "slow" else 1e6)
        return answered(record, step)

    return {"fixed": "secret-key", "sync": key, "async": later}[world.source]


async def live(world):
    faults = [{**FAULTS, **PAUSES}[name] for name in world.faults]

    def then(request):
        for user in request.user_ids:
            if not any(request.api_key in record.keys_of(request) for record in records if user in record.users):
                wrong.append((request.api_key, user))
        if request.message["title"]["en"] == "hopeless":
            return answer(400)
        if len(request.user_ids) > world.takes:
            return answer(413)
        if any(user_of(culprit, 0) in request.user_ids for culprit in world.culprits):
            return answer(400)
        return faults.pop(0) if faults else answer()

    service = FakeService(then=then)
    events = []
    wrong = []
    options = {"batching": world.batching, "limits": world.limits, "rate": world.rate}
    client = client_of(service, api_key=source_of(world), on_event=events.append, retry_tokens=world.tokens, **options)
    records = [CallRecord(number, deed, world) for number, deed in enumerate(world.deeds)]
    tasks = [asyncio.ensure_future(record.live(client)) for record in records]
    await asyncio.sleep(world.close_at)
    closing = asyncio.get_running_loop().time()
    report = await client.aclose(drain=world.drain)
    assert asyncio.get_running_loop().time() <= closing + world.drain + GRACE
    await asyncio.wait(tasks)
    await turns()  # a task ends after its calls
    assert idle(client), client.stats()
    assert wrong == []
    assert service.closed == 1
    assert service.in_flight == 0
    assert all(len({*request.user_ids}) == len(request.user_ids) for request in service.requests)
    assert service.most_in_flight <= world.limits.in_flight
    abandoned = [event for event in events if isinstance(event, SendAbandoned)]
    assert list(report.abandoned) == abandoned
    finals = judge(records, service, abandoned)
    judge_report(records, report, finals, closing)
    judge_effort(client, service, world)


def judge(records, service, abandoned):
    """Every caller was told the truth, once, in time. Returns the final outcome of every user of one call only."""
    ends = {}
    for event in abandoned:
        own = [user for user in event.user_ids if user not in SHARED_USERS]
        assert not ends.keys() & set(own), "a user's end was told twice"
        ends |= dict.fromkeys(own, event)
    processed = Counter(
        (user, request.message["title"]["en"])
        for request in service.requests
        if request.accepted
        for user in request.user_ids
    )
    least = Counter()
    most = Counter()
    finals = {}
    for record in records:
        result = record.result
        outcomes = record.outcomes
        assert record.times <= 1
        assert record.times == 1 or record.cancelled
        assert record.cancelled or set(outcomes) == set(record.users)
        if record.times and record.style.total is not None:
            assert record.ended <= record.started + record.style.total + GRACE
        attempts = () if record.cancelled else result.attempts
        # Once per attempt, once after a 401, and once if the deadline passed before the attempt.
        asks = 2 * len(attempts) + 1
        assert record.cancelled or Outcome.UNKNOWN in outcomes.values() or record.asked <= asks
        if attempts and not isinstance(result, PartialError):
            assert result.outcome is join([attempt.outcome for attempt in attempts])
        for user in record.users:
            final = outcomes.get(user)
            tries = attempts
            if user in ends:
                assert record.cancelled or (final, result.outcome) != (Outcome.ACCEPTED, Outcome.ACCEPTED)
                assert final in (None, Outcome.UNKNOWN, ends[user].outcome), "its end is not what its caller was told"
                final = ends[user].outcome
                tries = ends[user].attempts
            elif record.cancelled and user not in SHARED_USERS:
                assert record.times == 0, "cancelled, and its end was not told"
                final = Outcome.NOT_SENT
            elif final is Outcome.UNKNOWN and user not in SHARED_USERS:
                assert attempts, "unknown by nothing that was tried"
            requests = [request for request in service.written if user in request.user_ids]
            assert final is not Outcome.UNKNOWN or any(
                request.evidence.status not in REFUSALS or record.ended < request.ended + GRACE for request in requests
            ), "in doubt, and nothing was in flight"
            if user not in SHARED_USERS:
                finals[user] = final
                assert not record.cancelled or all(request.started <= record.ended for request in requests)
            key = (user, record.title)
            least[key] += final is Outcome.ACCEPTED
            if user in SHARED_USERS and final in (None, Outcome.UNKNOWN):
                # The calls that share an end can't be told apart: allow a tolerance.
                most[key] += 4
            elif record.style.policy == "at_least_once" or (
                record.style.policy == "collapsible" and record.deed.message == 1
            ):
                most[key] += sum(try_.outcome in (Outcome.ACCEPTED, Outcome.UNKNOWN) for try_ in tries)
            else:
                most[key] += final in (Outcome.ACCEPTED, Outcome.UNKNOWN)
    for key in {*least, *processed}:
        assert least[key] <= processed[key] <= most[key], (key, least[key], processed[key], most[key])
    return finals


def judge_report(records, report, finals, closing):
    """The report of the close names whoever was on the way, with the true outcome."""
    named = {
        user: outcome
        for outcome in Outcome
        for user in getattr(report, outcome.value.lower())
        if user not in SHARED_USERS
    }
    assert all(finals[user] is outcome for user, outcome in named.items())
    for record in records:
        if record.times and record.started < closing < record.ended:
            ends = {user for event in report.abandoned for user in event.user_ids}
            assert {*record.users} - {*SHARED_USERS} <= ends | named.keys()


def judge_effort(client, service, world):
    """Retries were paid for, and the counters add up."""
    stats = client.stats()
    accepted = sum(request.accepted for request in service.requests)
    # A retry that succeeds gives its cost back, a success on the first try one token.
    assert (stats.retries - accepted) * THROTTLED_COST <= world.tokens + accepted
    if world.source != "fixed":
        return  # attempts without a key are no requests, and a rotated key is tried again at once
    assert stats.attempts <= len(service.requests) <= stats.attempts + stats.stale_connections
    assert stats.attempts <= stats.requests + stats.retries


@settings(SHORT, max_examples=80)
@given(world=WORLDS | CROWDS | SPLITS)
def test_every_call_gets_its_true_outcome_once_and_in_time_under_its_key(world):
    run(live(world), collect=False)


@pytest.mark.long
@LONG
@given(world=WORLDS | CROWDS | SPLITS)
def test_every_call_gets_its_true_outcome_once_and_in_time_under_its_key_at_length(world):
    run(live(world), collect=False)
