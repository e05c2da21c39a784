"""Results, events and counters: plain values that show no user id in their repr."""

from typing import get_args

import msgspec
import pytest

from pushsdk._core.events import (
    AttemptEnded,
    ClientPaused,
    Event,
    RequestSplit,
    RetryScheduled,
    SendAbandoned,
    SendNotBegun,
)
from pushsdk._core.outcome import Attempt, Outcome
from pushsdk._core.results import ClientStats, Counters, DrainReport, Receipt

ATTEMPTS = (
    Attempt(outcome=Outcome.REJECTED, status=429, reason="HTTP 429", started=1.0),
    Attempt(outcome=Outcome.ACCEPTED, status=204, reason="HTTP 204", started=2.0),
)
ABANDONED = SendAbandoned(outcome=Outcome.UNKNOWN, user_ids=("ada", "bob"), attempts=ATTEMPTS)
VALUES = [
    Receipt(users=2, duplicates=1, requests=1, attempts=ATTEMPTS),
    DrainReport(accepted=("ada",), rejected=("bob",), not_sent=("cy",), unknown=("di",), abandoned=(ABANDONED,)),
    ClientStats(accepted=3, paused=1.5),
    AttemptEnded(endpoint="push", users=2, number=1, attempt=ATTEMPTS[0]),
    RetryScheduled(endpoint="campaigns", users=0, number=1, wait=0.5, attempt=ATTEMPTS[0]),
    ClientPaused(seconds=2.0),
    SendNotBegun(users=1, seconds_left=0.1, seconds_needed=0.2),
    RequestSplit(status=413, users=10, calls=3),
    ABANDONED,
]
by_name = pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)


@by_name
def test_no_value_shows_a_user_id(value):
    text = f"{value} {value!r} {[value]}"
    if hasattr(value, "__rich_repr__"):
        text += repr(value.__rich_repr__())
    assert not any(user in text for user in ("ada", "bob", "cy'", "di'"))


@by_name
def test_a_value_takes_keywords_only(value):
    first = value.__struct_fields__[0]
    with pytest.raises(TypeError):
        type(value)(getattr(value, first))


def test_every_event_is_among_these_values():
    assert set(get_args(Event)) == {type(value) for value in VALUES[3:]}


def test_a_receipt_is_accepted_and_has_the_status_of_its_last_attempt():
    assert (VALUES[0].outcome, VALUES[0].status) == (Outcome.ACCEPTED, 204)
    assert Receipt(users=1).status is None


def test_reprs_that_hide_ids_show_how_many():
    assert repr(ABANDONED) == "SendAbandoned(outcome=UNKNOWN, users=2, attempts=2)"
    assert ABANDONED.__rich_repr__() == [("outcome", Outcome.UNKNOWN), ("users", 2), ("attempts", 2)]
    assert repr(VALUES[1]) == "DrainReport(accepted=1, rejected=1, not_sent=1, unknown=1, abandoned=1)"
    assert VALUES[1].__rich_repr__() == [
        ("accepted", 1),
        ("rejected", 1),
        ("not_sent", 1),
        ("unknown", 1),
        ("abandoned", 1),
    ]


def test_the_counters_start_at_zero_and_are_those_of_the_stats():
    counters = Counters()
    assert counters.users == dict.fromkeys(Outcome, 0)
    names = [name for name in Counters.__slots__ if name != "users"]
    assert all(getattr(counters, name) == 0 for name in names)
    assert {*names, *(outcome.value.lower() for outcome in Outcome)} <= set(ClientStats.__struct_fields__)
    assert set(msgspec.structs.asdict(ClientStats()).values()) == {0}


def test_a_receipt_shows_ids_that_were_not_pushed_only_if_there_are_any():
    assert repr(Receipt(users=2)) == "Receipt(ACCEPTED, users=2, requests=1, attempts=0)"
    assert repr(Receipt(users=3, duplicates=1, requests=0, already_accepted=3)) == (
        "Receipt(ACCEPTED, users=3, requests=0, attempts=0, duplicates=1, already_accepted=3)"
    )
