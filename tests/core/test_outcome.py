"""The outcome table, judging the evidence of one attempt, and joining the attempts of a request."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pushsdk._core.judging import RETRYABLE, judge
from pushsdk._core.outcome import NEEDS_A_FIX, PROVES_UNSENT, Attempt, Evidence, Failure, Outcome, join, verdict_of
from pushsdk._core.secret import Secret

ACCEPTED = Outcome.ACCEPTED
REJECTED = Outcome.REJECTED
NOT_SENT = Outcome.NOT_SENT
UNKNOWN = Outcome.UNKNOWN
ORDER = [NOT_SENT, REJECTED, UNKNOWN, ACCEPTED]


def evidence(**fields):
    proof = Evidence()
    for name, value in fields.items():
        setattr(proof, name, value)
    return proof


def answered(status, **fields):
    """Return the evidence of a response to a request that a real transport had written whole."""
    whole = {"touched": True, "started_writing": True, "written": True, "body": b""}
    return evidence(**{**whole, "status": status, **fields})


def judged(evidence, *, statuses=None, retry_on=RETRYABLE):
    return judge(evidence, statuses=statuses or {}, retry_on=retry_on, started=7.0, seconds=0.5, key=Secret.of("key"))


# -- the table --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "retry_after", "settings", "outcome", "retryable"),
    [
        (503, 3.0, {"retry_on": frozenset()}, REJECTED, True),
        (503, None, {"statuses": {503: REJECTED}, "retry_on": frozenset()}, REJECTED, False),
        (500, None, {"statuses": {500: REJECTED}, "retry_on": frozenset({500})}, REJECTED, True),
        (500, None, {"retry_on": frozenset({500})}, UNKNOWN, False),
        (404, None, {"statuses": {404: ACCEPTED}, "retry_on": frozenset({404})}, ACCEPTED, False),
        (204, None, {"statuses": {204: REJECTED}}, REJECTED, False),
        (429, None, {"retry_on": frozenset()}, REJECTED, False),
    ],
)
def test_a_status_is_read_by_the_table_and_the_policy_overrides_it(status, retry_after, settings, outcome, retryable):
    attempt = judged(answered(status, retry_after=retry_after), **settings)
    assert attempt.outcome == outcome
    assert attempt.retryable == retryable
    assert attempt.retry_after == retry_after
    assert attempt.status == status
    assert attempt.reason == f"HTTP {status}"
    assert attempt.started == 7.0
    assert attempt.seconds == 0.5


@given(st.integers(-10, 20_000), st.none() | st.floats(0, 1e6))
def test_every_status_has_one_reading(status, retry_after):
    attempt = judged(answered(status, retry_after=retry_after))
    assert (attempt.outcome is ACCEPTED) == (200 <= status <= 299)
    is_read = 200 <= status <= 499 or status in (501, 505) or (status == 503 and retry_after is not None)
    assert (attempt.outcome is UNKNOWN) is not is_read
    assert attempt.retryable is (status in (408, 425, 429) or (status == 503 and is_read))


# -- the evidence of one attempt --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "body", "outcome"),
    [
        ("Application/Vnd.Push+JSON ; charset=utf-8", b"<html>", ACCEPTED),
        ("text/html", b"", ACCEPTED),
        ("text/html", b' \n{"uuid":"x"', ACCEPTED),
        (None, b"[", ACCEPTED),
        (None, None, UNKNOWN),
        ("text/html; a=application/json", b"<", UNKNOWN),
        ("text/plain", b"OK", UNKNOWN),
        ("text/plain", b" ", UNKNOWN),
    ],
)
def test_a_2xx_is_accepted_only_if_its_body_is_json_or_empty(kind, body, outcome):
    evidence = answered(200, headers={} if kind is None else {"Content-Type": kind}, body=body)
    attempt = judged(evidence)
    assert attempt.outcome == outcome
    assert ("is base_url right?" in attempt.reason) == (outcome is UNKNOWN)
    assert judged(evidence, statuses={200: ACCEPTED}).outcome is ACCEPTED
    assert judged(answered(204, headers=evidence.headers, body=body)).outcome is ACCEPTED


def test_the_words_for_a_login_page_name_html_and_no_other_text_of_the_server():
    page = {"Content-Type": "Text/HTML; charset=utf-8"}
    assert judged(answered(200, headers=page, body=b"<")).reason == "HTTP 200 text/html: is base_url right?"
    other = judged(answered(202, headers={"Content-Type": "user-1/x"}, body=b"<"))
    assert other.reason == "HTTP 202 with a body that is not JSON: is base_url right?"


@pytest.mark.parametrize(
    ("status", "statuses", "outcome"),
    [
        (200, {}, UNKNOWN),
        (204, {}, UNKNOWN),
        (204, {409: ACCEPTED}, UNKNOWN),
        (409, {409: ACCEPTED}, UNKNOWN),
        (413, {}, REJECTED),
    ],
)
def test_an_acceptance_needs_the_whole_request_and_a_rejection_does_not(status, statuses, outcome):
    assert judged(answered(status, written=False), statuses=statuses).outcome is outcome


@pytest.mark.parametrize("status", [204, 400, 429])
def test_a_response_that_arrived_before_the_request_answers_nothing(status):
    stray = evidence(touched=True, reused=True, status=status, failure=Failure.STALE)
    before = repr(stray)
    attempt = judged(stray)
    assert attempt.outcome == NOT_SENT
    assert attempt.retryable
    assert attempt.status is None
    assert attempt.reason == str(Failure.STALE)
    assert repr(stray) == before


def test_only_a_failure_before_the_first_byte_is_not_sent_and_of_a_mock_only_one_that_proves_it():
    for failure in Failure:
        started = judged(evidence(touched=True, started_writing=True, failure=failure))
        assert started.outcome == UNKNOWN
        assert not started.retryable
        before = judged(evidence(touched=True, failure=failure))
        assert before.outcome == NOT_SENT
        assert before.retryable == (failure not in NEEDS_A_FIX)
        mocked = judged(evidence(failure=failure))
        assert mocked.outcome is (NOT_SENT if failure in PROVES_UNSENT else UNKNOWN)
    assert {Failure.TLS, Failure.CERTIFICATE} <= NEEDS_A_FIX <= PROVES_UNSENT | {Failure.SESSION}
    assert judged(Evidence()).outcome is UNKNOWN
    # A mock above the socket is believed in its status.
    assert [judged(evidence(status=status)).outcome for status in (204, 400, 500)] == [ACCEPTED, REJECTED, UNKNOWN]


def test_the_reason_names_the_failure_and_the_exceptions_class():
    broken = evidence(touched=True, started_writing=True, failure=Failure.RESET, reason="ClientOSError")
    assert judged(broken).reason == "the connection broke: ClientOSError"


@given(
    st.booleans(), st.booleans(), st.booleans(), st.none() | st.integers(100, 599), st.none() | st.sampled_from(Failure)
)
def test_accepted_and_not_sent_need_a_proof(touched, started, written, status, failure):
    touched, started = touched or started or written, started or written
    attempt = judged(
        evidence(touched=touched, started_writing=started, written=written, status=status, failure=failure)
    )
    if attempt.outcome is ACCEPTED:
        assert status in range(200, 300)
        assert written or not touched
    if attempt.outcome is NOT_SENT:
        assert not started
        assert touched or failure in PROVES_UNSENT


# -- the join of attempts ---------------------------------------------------------------------------------------


@given(st.lists(st.sampled_from(Outcome)))
def test_the_join_of_attempts_is_the_strongest(outcomes):
    attempts = [Attempt(outcome=outcome, started=float(number)) for number, outcome in enumerate(outcomes)]
    strongest = max(outcomes, key=ORDER.index, default=NOT_SENT)
    assert join(outcomes) is strongest
    verdict = verdict_of(attempts, answered(429, retry_after=2.0))
    assert verdict.outcome == strongest
    assert verdict.attempts == tuple(attempts)
    assert verdict.status == 429
    assert verdict.retry_after == 2.0
    assert verdict.failure is None
