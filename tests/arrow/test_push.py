"""A plan over real sockets: requests, outcomes and claims, judged by the service's own count."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from support.arrow_plans import MESSAGE, ReportedUser, counts, plan, rebatched, reported, user

from pushsdk import MessageWarning, RetryPolicy
from pushsdk.emulator import Fault

ACCEPTED = ReportedUser("ACCEPTED", 204, "")


def test_a_plan_says_before_it_sends_which_fields_of_the_policy_it_does_not_use(push_env, sent):
    with pytest.warns(MessageWarning, match="a run does not use RetryPolicy.max_attempts and RetryPolicy.unknown: "):
        sent(plan(1), retry=RetryPolicy.at_least_once(max_attempts=2)).close()
    push_env.assert_nothing_sent()


@pytest.mark.parametrize("personal", [None, "placeholders"])
def test_damaged_ids_in_a_plan_are_counted_in_one_warning(personal, push_env, sent):
    batches = plan(4, size=2, personal=bool(personal), name="{}.0")
    with pytest.warns(MessageWarning, match=r"a user id is a number with \.0 at its end.* \(4 such ids\)") as caught:
        list(sent(batches, personal=personal))
    assert push_env.users() == {f"{number}.0": 1 for number in range(4)}
    assert [Path(warning.filename) for warning in caught] == [Path(__file__)]


@pytest.mark.parametrize("personal", [None, "placeholders"])
def test_a_plan_in_other_batches_is_the_same_plan_and_only_the_rest_is_sent(personal, push_env, sent):
    batches = plan(60, personal=bool(personal))
    faults = [Fault.status(404, user="user-3"), Fault.reset_after(user="user-10"), Fault.status(502, user="user-20")]
    with push_env.fault(*faults, Fault.status(503, retry_after=0, every=2, first=20)):
        first = reported(sent(batches[:2] if personal is None else batches, personal=personal))
    later = reported(sent(rebatched(batches, 7), personal=personal))
    assert {**later, **first} == later
    size = 10 if personal is None else 1
    found = [first[name] for name in ("user-3", "user-10", "user-20")]
    assert [one.status for one in found] == [404, None, 502]
    assert [one.outcome for one in found] == ["REJECTED", "UNKNOWN", "UNKNOWN"]
    assert found[1].reason.startswith("the connection ")
    assert counts(sent(batches, personal=personal)) == {
        "REJECTED": size,
        "UNKNOWN": 2 * size,
        "ACCEPTED": 60 - 3 * size,
    }
    push_env.assert_no_duplicates()


def test_one_rejected_id_does_not_affect_the_others_and_chunks_that_are_too_large_are_split(push_env, sent):
    with push_env.fault(Fault.status(422, user="user-13"), Fault.status(413, more_than_users=30)):
        rows = reported(sent(plan(300, size=100)))
    assert rows.pop("user-13") == ReportedUser("REJECTED", 422, "HTTP 422")
    assert set(rows.values()) == {ACCEPTED}
    assert push_env.users() == dict.fromkeys(rows, 1)


# -- personal ---------------------------------------------------------------------------------------------------------


def test_fields_become_custom_fields_over_those_of_all(push_env, sent):
    list(sent(plan(5, personal=True), custom_fields={"name": "nobody", "offer": 7}, personal="custom_fields"))
    assert {push.user_ids: push.custom_fields for push in push_env.pushes} == {
        (user(number),): {"name": f"name of user-{number}", "offer": 7} for number in range(5)
    }
    assert {json.dumps(push.message) for push in push_env.pushes} == {json.dumps(MESSAGE)}


# -- the batches ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "make"),
    [
        (pa.string(), pa.large_list),
        (pa.large_string(), pa.list_),
        (pa.dictionary(pa.int32(), pa.string()), pa.list_),
        (pa.dictionary(pa.int8(), pa.large_string()), pa.large_list),
    ],
)
def test_texts_and_lists_of_any_type_are_accepted(push_env, sent, text, make):
    (batch,) = plan(6, size=2, personal=True, name="ä{}")
    schema = pa.schema([("chunk_id", text), ("user_ids", make(text)), ("fields", make(text))])
    (batch,) = pa.Table.from_batches([batch]).cast(schema).to_batches()
    # Sliced, its columns begin in the middle of what they are made of.
    rows = reported(sent([batch.slice(1), batch.slice(0, 1)], personal="placeholders"))
    assert rows == {f"ä{number}": ACCEPTED for number in range(6)}
    assert push_env.users() == dict.fromkeys(rows, 1)
