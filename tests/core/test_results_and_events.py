"""Results, events and counters: plain values that show no user id in their repr."""

import json

import pytest

from pushsdk._core.events import SendAbandoned
from pushsdk._core.outcome import Attempt, Outcome
from pushsdk._core.results import DrainReport, Receipt

ATTEMPTS = (
    Attempt(outcome=Outcome.REJECTED, status=429, reason="HTTP 429", started=1.0),
    Attempt(outcome=Outcome.ACCEPTED, status=204, reason="HTTP 204", started=2.0),
)
ABANDONED = SendAbandoned(outcome=Outcome.UNKNOWN, user_ids=("ada", "bob"), attempts=ATTEMPTS)
RECEIPT = Receipt(users=3, duplicates=1, requests=0, already_accepted=3, attempts=ATTEMPTS)
REPORT = DrainReport(accepted=("ada",), rejected=("bob",), not_sent=("cy",), unknown=("di",), abandoned=(ABANDONED,))


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (ABANDONED, "SendAbandoned(outcome=UNKNOWN, users=2, attempts=2)"),
        (REPORT, "DrainReport(accepted=1, rejected=1, not_sent=1, unknown=1, abandoned=1)"),
        (RECEIPT, "Receipt(ACCEPTED, users=3, requests=0, attempts=2, duplicates=1, already_accepted=3)"),
        (Receipt(users=2), "Receipt(ACCEPTED, users=2, requests=1, attempts=0)"),
    ],
)
def test_reprs_show_how_many_users_and_no_id(value, shown):
    assert repr(value) == shown
    assert "ada" not in repr(value.__rich_repr__())


def test_a_receipt_is_accepted_and_has_the_status_of_its_last_attempt():
    assert RECEIPT.outcome == Outcome.ACCEPTED
    assert RECEIPT.status == 204
    assert Receipt(users=1).status is None


def test_a_web_framework_can_answer_with_a_receipt():
    counts = {"users": 3, "duplicates": 1, "requests": 0, "already_accepted": 3}
    assert json.loads(json.dumps(dict(RECEIPT))) == {"outcome": "ACCEPTED", "status": RECEIPT.status, **counts}
