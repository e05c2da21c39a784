"""A plan over real sockets: requests, outcomes and claims, judged by the service's own count."""

import json
from collections import Counter
from collections.abc import Callable
from typing import Any, Literal

import pyarrow as pa
import pytest
from support.arrow_plans import MESSAGE, ReportedUser, counts, plan, rebatched, reported, user

from pushsdk import Batching, Limits, MessageWarning, MobilePush, Outcome, RetryPolicy, StopPolicy
from pushsdk.arrow import push_batches
from pushsdk.claims import ClaimStore
from pushsdk.emulator import Fault
from pushsdk.testing import PushInbox

Make = Callable[[], ClaimStore]
NO_STOP_POLICY = StopPolicy.off()
QUICK = RetryPolicy.safe(initial_delay=0.001, max_delay=0.01, throttle_delay=0.001)
ACCEPTED = ReportedUser("ACCEPTED", 204, "")


def test_every_user_of_a_plan_is_pushed_once_and_reported_once(push_env: PushInbox, claims: Make) -> None:
    rows = reported(push_batches(plan(95), MESSAGE, run="spring", claims=claims))
    assert rows == {user(number): ACCEPTED for number in range(95)}
    assert push_env.users() == dict.fromkeys(rows, 1)
    assert len(push_env.pushes) == 10


def test_a_message_and_its_fields_go_out_as_they_are(push_env: PushInbox, claims: Make) -> None:
    message = MobilePush(title={"en": "Hi {{ name | 'you' }}"})
    list(push_batches(plan(1), message, run="spring", claims=claims, custom_fields={"offer": 7}))
    (sent,) = push_env.pushes
    assert (sent.message, sent.custom_fields) == (
        {"title": {"en": "Hi {{ name | 'you' }}"}, "type": "MOBILE_PUSH"},
        {"offer": 7},
    )


def test_a_plan_says_before_it_sends_which_fields_of_the_policy_it_does_not_use(
    push_env: PushInbox, claims: Make
) -> None:
    with pytest.warns(MessageWarning, match="a run does not use RetryPolicy.max_attempts and RetryPolicy.unknown: "):
        push_batches(plan(1), MESSAGE, run="x", claims=claims, retry=RetryPolicy.at_least_once(max_attempts=2)).close()
    push_env.assert_nothing_sent()


def test_an_empty_plan_yields_nothing_and_sends_nothing(push_env: PushInbox, claims: Make) -> None:
    assert list(push_batches([], MESSAGE, run="spring", claims=claims)) == []
    assert list(push_batches(plan(10)[:0], MESSAGE, run="spring", claims=claims)) == []
    push_env.assert_nothing_sent()


def test_a_plan_sent_again_reports_its_outcomes_and_sends_nothing(push_env: PushInbox, claims: Make) -> None:
    with push_env.fault(Fault.status(404, user="user-3")):
        first = reported(push_batches(plan(50), MESSAGE, run="spring", claims=claims, stop_policy=NO_STOP_POLICY))
    later_totals = reported(push_batches(plan(50), MESSAGE, run="spring", claims=claims))
    rejected = [user(number) for number in range(10)]
    assert {user: first[user] for user in rejected} == dict.fromkeys(
        rejected, ReportedUser("REJECTED", 404, "HTTP 404")
    )
    assert {user: later_totals[user] for user in rejected} == {user: first[user] for user in rejected}
    assert {user: one for user, one in later_totals.items() if user not in rejected} == {
        user(number): ACCEPTED for number in range(10, 50)
    }
    assert len(push_env.pushes) == 4
    push_env.assert_no_duplicates()


def test_another_run_of_the_same_plan_pushes_again(push_env: PushInbox, claims: Make) -> None:
    for run in ("spring", "summer"):
        assert counts(push_batches(plan(20), MESSAGE, run=run, claims=claims)) == {"ACCEPTED": 20}
    assert push_env.duplicates() == {user(number): 2 for number in range(20)}


@pytest.mark.parametrize("rows", [1, 7, 100])
def test_a_plan_in_other_batches_and_another_order_is_the_same_plan(
    push_env: PushInbox, claims: Make, rows: int
) -> None:
    batches = plan(200)
    with push_env.fault(Fault.reset_after(every=5)):
        first = counts(push_batches(batches[:4], MESSAGE, run="spring", claims=claims, stop_policy=NO_STOP_POLICY))
    later_totals = counts(push_batches(rebatched(batches, rows), MESSAGE, run="spring", claims=claims))
    assert (first["UNKNOWN"], later_totals["UNKNOWN"], later_totals["ACCEPTED"]) == (20, 20, 180)
    assert len(push_env.users()) == 200
    push_env.assert_no_duplicates()


def test_users_that_may_have_been_pushed_are_unknown_and_skipped(push_env: PushInbox, claims: Make) -> None:
    with push_env.fault(Fault.reset_after(user="user-0"), Fault.status(502, user="user-10")):
        first = reported(push_batches(plan(30), MESSAGE, run="spring", claims=claims, stop_policy=NO_STOP_POLICY))
    later_totals = reported(push_batches(plan(30), MESSAGE, run="spring", claims=claims))
    skipped = {user(number) for number in range(20)}
    assert {user for user, one in first.items() if one.outcome == Outcome.UNKNOWN} == skipped
    assert first["user-0"].reason.startswith("the connection ")
    assert first["user-10"] == ReportedUser("UNKNOWN", 502, "HTTP 502")
    assert {user: later_totals[user] for user in skipped} == {user: first[user] for user in skipped}
    push_env.assert_no_duplicates()


@pytest.mark.parametrize("status", [400, 422])
def test_one_rejected_id_does_not_affect_the_others(push_env: PushInbox, claims: Make, status: int) -> None:
    with push_env.fault(Fault.status(status, user="user-13")):
        rows = reported(push_batches(plan(300, size=100), MESSAGE, run="spring", claims=claims))
    assert rows.pop("user-13") == ReportedUser("REJECTED", status, f"HTTP {status}")
    assert set(rows.values()) == {ACCEPTED}
    assert push_env.users() == dict.fromkeys(rows, 1)


def test_chunks_too_large_for_the_service_are_split(push_env: PushInbox, claims: Make) -> None:
    with push_env.fault(Fault.status(413, more_than_users=30)):
        assert counts(push_batches(plan(400, size=100), MESSAGE, run="spring", claims=claims)) == {"ACCEPTED": 400}
    push_env.assert_no_duplicates()
    assert len(push_env.users()) == 400


@pytest.mark.parametrize("personal", [None, "placeholders"])
def test_temporarily_rejected_users_are_sent_to_later(
    push_env: PushInbox, claims: Make, personal: Literal["placeholders"] | None
) -> None:
    batches = plan(40, personal=personal is not None)
    with push_env.fault(Fault.status(503, headers={"Retry-After": "0"}, every=2, first=20)):
        totals = counts(
            push_batches(
                batches,
                MESSAGE,
                run="spring",
                claims=claims,
                retry=QUICK,
                personal=personal,
                stop_policy=NO_STOP_POLICY,
            )
        )
    assert totals == {"ACCEPTED": 40}
    push_env.assert_no_duplicates()


def test_more_failures_than_a_send_would_retry_are_retried(push_env: PushInbox, claims: Make) -> None:
    with push_env.fault(Fault.status(425, first=30)):
        assert counts(
            push_batches(plan(10), MESSAGE, run="spring", claims=claims, retry=QUICK, stop_policy=NO_STOP_POLICY)
        ) == {"ACCEPTED": 10}
    assert len(push_env.pushes) == 1


# -- personal ---------------------------------------------------------------------------------------------------------


def test_placeholders_are_filled_from_the_fields_of_a_user(push_env: PushInbox, claims: Make) -> None:
    batches = plan(25, personal=True)
    rows = reported(push_batches(batches, MESSAGE, run="spring", claims=claims, personal="placeholders"))
    assert set(rows.values()) == {ACCEPTED}
    assert {push.user_ids: push.message["body"]["en"] for push in push_env.pushes} == {
        (user(number),): f"Hello name of user-{number}" for number in range(25)
    }
    assert {push.custom_fields for push in push_env.pushes} == {None}
    push_env.assert_no_duplicates()


def test_fields_become_custom_fields_over_those_of_all(push_env: PushInbox, claims: Make) -> None:
    batches = plan(5, personal=True)
    options: dict[str, Any] = {"custom_fields": {"name": "nobody", "offer": 7}, "personal": "custom_fields"}
    list(push_batches(batches, MESSAGE, run="spring", claims=claims, **options))
    assert {push.user_ids: push.custom_fields for push in push_env.pushes} == {
        (user(number),): {"name": f"name of user-{number}", "offer": 7} for number in range(5)
    }
    assert {json.dumps(push.message) for push in push_env.pushes} == {json.dumps(MESSAGE)}


def test_each_user_of_a_personal_chunk_has_a_separate_outcome(push_env: PushInbox, claims: Make) -> None:
    faults = [Fault.status(400, user="user-3"), Fault.reset_after(user="user-5"), Fault.status(404, user="user-7")]
    batches = plan(10, personal=True)
    with push_env.fault(*faults):
        first = reported(
            push_batches(
                batches, MESSAGE, run="spring", claims=claims, personal="placeholders", stop_policy=NO_STOP_POLICY
            )
        )
    later_totals = reported(push_batches(batches, MESSAGE, run="spring", claims=claims, personal="placeholders"))
    for rows in (first, later_totals):
        assert [rows[user(number)].outcome for number in range(10)] == [
            *["ACCEPTED"] * 3, "REJECTED", "ACCEPTED", "UNKNOWN", "ACCEPTED", "REJECTED", "ACCEPTED", "ACCEPTED"
        ]  # fmt: skip
    assert [first["user-3"].status, later_totals["user-3"].status] == [400, 400]
    push_env.assert_no_duplicates()


# -- when it stops ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [401, 403])
def test_a_rejected_key_stops_the_sending_and_settles_no_user(push_env: PushInbox, claims: Make, status: int) -> None:
    with push_env.fault(Fault.status(status)):
        rows = reported(push_batches(plan(2000), MESSAGE, run="spring", claims=claims, limits=Limits(in_flight=4)))
    assert len(rows) == 2000
    assert Counter(row.outcome for row in rows.values()) == {"NOT_SENT": 2000}
    reasons = Counter((row.status, row.reason.partition(":")[0]) for row in rows.values())
    assert reasons[None, f"HTTP {status}"] >= 1900, "they were never claimed"
    assert counts(push_batches(plan(2000), MESSAGE, run="spring", claims=claims)) == {"ACCEPTED": 2000}
    push_env.assert_no_duplicates()


def test_a_stop_policy_stops_the_sending_and_the_next_call_sends_the_rest(push_env: PushInbox, claims: Make) -> None:
    stop_policy = StopPolicy(rejected=0.5, after=200)
    with push_env.fault(Fault.status(404)):
        first = reported(
            push_batches(
                plan(2000), MESSAGE, run="spring", claims=claims, stop_policy=stop_policy, limits=Limits(in_flight=4)
            )
        )
    totals = Counter(row.outcome for row in first.values())
    assert 200 <= totals["REJECTED"] < 400
    assert totals["REJECTED"] + totals["NOT_SENT"] == 2000
    (reason,) = {row.reason for row in first.values() if row.outcome == "NOT_SENT"}
    assert "the stop policy allows 50 %" in reason
    later_totals = counts(push_batches(plan(2000), MESSAGE, run="spring", claims=claims))
    assert later_totals == {"REJECTED": totals["REJECTED"], "ACCEPTED": totals["NOT_SENT"]}


def test_an_untrusted_certificate_stops_the_sending(claims: Make, push: PushInbox) -> None:
    base_url = push.base_url.replace("http://", "https://")
    rows = reported(
        push_batches(
            plan(200),
            MESSAGE,
            run="spring",
            claims=claims,
            base_url=base_url,
            api_key="key",
            limits=Limits(in_flight=2),
        )
    )
    assert Counter(row.outcome for row in rows.values()) == {"NOT_SENT": 200}
    assert any("no request would succeed. Fix the cause, then resume" in row.reason for row in rows.values())


# -- the batches ------------------------------------------------------------------------------------------------------


TEXTS = [
    pa.string(),
    pa.large_string(),
    pa.dictionary(pa.int32(), pa.string()),
    pa.dictionary(pa.int8(), pa.large_string()),
]


@pytest.mark.parametrize("text", TEXTS, ids=str)
@pytest.mark.parametrize("make", [pa.list_, pa.large_list])
def test_texts_and_lists_of_any_type_are_accepted(
    push_env: PushInbox, claims: Make, text: pa.DataType, make: Callable[[pa.DataType], pa.DataType]
) -> None:
    ids = [["ä", "b"], ["c"], ["d", "e", "f"]]
    fields = [['{"name":"x"}'] * len(user) for user in ids]
    columns = [
        pa.array(["1", "2", "3"], pa.string()).cast(text),
        *(pa.array(lists, make(pa.string())).cast(make(text)) for lists in (ids, fields)),
    ]
    batch = pa.RecordBatch.from_arrays(columns, ["chunk_id", "user_ids", "fields"])
    # Sliced, its columns begin in the middle of what they are made of.
    rows = reported(
        push_batches([batch.slice(1), batch.slice(0, 1)], MESSAGE, run="spring", claims=claims, personal="placeholders")
    )
    assert rows == dict.fromkeys("äbcdef", ACCEPTED)
    assert push_env.users() == dict.fromkeys("äbcdef", 1)


def test_ids_are_not_copied(push_env: PushInbox, claims: Make) -> None:
    (batch,) = plan(20, rows=2)
    values = batch.column("user_ids").values
    first, second = push_batches([batch], MESSAGE, run="spring", claims=claims)
    for owner in (first, second):
        assert owner.column("user_id").buffers()[2].address == values.buffers()[2].address


def test_chunks_of_max_users_are_sent_whole(push_env: PushInbox, claims: Make) -> None:
    totals = counts(
        push_batches(plan(50, size=25), MESSAGE, run="spring", claims=claims, batching=Batching(max_users=25))
    )
    assert totals == {"ACCEPTED": 50}
