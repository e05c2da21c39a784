"""The outcome table, judging the evidence of one attempt, and joining the attempts of a request."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pushsdk._core.outcome import (
    NEEDS_A_FIX,
    PROVES_UNSENT,
    RETRYABLE,
    Attempt,
    Evidence,
    Failure,
    Outcome,
    join,
    judge,
    verdict_of,
)
from pushsdk._core.secret import Secret

ACCEPTED, REJECTED, NOT_SENT, UNKNOWN = Outcome.ACCEPTED, Outcome.REJECTED, Outcome.NOT_SENT, Outcome.UNKNOWN
outcomes = st.sampled_from(Outcome)


def evidence(**fields) -> Evidence:
    proof = Evidence()
    for name, value in fields.items():
        setattr(proof, name, value)
    return proof


def answered(status: int, **fields) -> Evidence:
    """Return the evidence of a response to a request that a real transport had written whole."""
    whole = {"touched": True, "started_writing": True, "written": True, "body": b""}
    return evidence(**{**whole, "status": status, **fields})


def judged(evidence: Evidence, *, statuses=None, retry_on=RETRYABLE, key=None) -> Attempt:
    return judge(evidence, statuses=statuses or {}, retry_on=retry_on, started=7.0, seconds=0.5, key=key)


def read(status: int, *, retry_after: float | None = None, statuses=None, retry_on=RETRYABLE):
    attempt = judged(answered(status, retry_after=retry_after), statuses=statuses, retry_on=retry_on)
    return attempt.outcome, attempt.retryable


# -- the table --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("statuses", "outcome", "retryable"),
    [
        ([200, 201, 202, 204, 206, 299], ACCEPTED, False),
        ([300, 301, 302, 303, 304, 307, 308, 399], REJECTED, False),
        ([400, 401, 403, 404, 409, 410, 413, 422, 451, 499], REJECTED, False),
        ([408, 425, 429], REJECTED, True),
        ([501, 505], REJECTED, False),
        ([500, 502, 503, 504, 506, 511, 520, 524, 530, 599], UNKNOWN, False),
        ([0, 1, 99, 100, 101, 103, 199, 600, 999, 9999, 10_000, -1], UNKNOWN, False),
    ],
)
def test_a_status_is_read_by_the_table(statuses, outcome, retryable):
    assert {status: read(status) for status in statuses} == dict.fromkeys(statuses, (outcome, retryable))


def test_a_503_with_a_valid_retry_after_is_a_retryable_rejection():
    assert read(503, retry_after=0.0) == (REJECTED, True)
    assert read(503, retry_after=3.0, retry_on=frozenset()) == (REJECTED, True)
    assert read(503, retry_after=3.0, statuses={503: REJECTED}, retry_on=frozenset()) == (REJECTED, True)
    assert read(503, statuses={503: REJECTED}, retry_on=frozenset()) == (REJECTED, False)


@pytest.mark.parametrize("status", [500, 502, 504, 520])
def test_a_retry_after_makes_no_other_5xx_a_refusal(status):
    assert read(status, retry_after=3.0) == (UNKNOWN, False)


@given(st.integers(-10, 20_000), st.none() | st.floats(0, 1e6))
def test_every_status_has_one_reading_and_only_a_2xx_is_accepted(status, retry_after):
    outcome, retryable = read(status, retry_after=retry_after)
    assert (outcome is ACCEPTED) == (200 <= status <= 299)
    assert outcome is not NOT_SENT
    assert not retryable or outcome is REJECTED


@pytest.mark.parametrize(
    ("outcome", "status", "retry_on", "expected"),
    [
        ({500: REJECTED}, 500, RETRYABLE, (REJECTED, False)),
        ({500: REJECTED}, 500, frozenset({500}), (REJECTED, True)),
        ({404: ACCEPTED}, 404, frozenset({404}), (ACCEPTED, False)),
        ({200: UNKNOWN}, 200, RETRYABLE, (UNKNOWN, False)),
        ({500: REJECTED}, 502, RETRYABLE, (UNKNOWN, False)),
        ({204: REJECTED}, 204, RETRYABLE, (REJECTED, False)),
        ({}, 429, frozenset(), (REJECTED, False)),
        ({}, 404, frozenset({404}), (REJECTED, True)),
        ({}, 500, frozenset({500}), (UNKNOWN, False)),
        ({}, 204, frozenset({204}), (ACCEPTED, False)),
    ],
)
def test_statuses_of_the_policy_override_the_table(outcome, status, retry_on, expected):
    assert read(status, statuses=outcome, retry_on=retry_on) == expected


# -- the evidence of one attempt --------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [200, 204, 299])
def test_a_2xx_for_a_request_written_whole_is_accepted(status):
    attempt = judged(answered(status))
    assert (attempt.outcome, attempt.status, attempt.reason) == (ACCEPTED, status, f"HTTP {status}")
    assert (attempt.started, attempt.seconds, attempt.retryable) == (7.0, 0.5, False)


@pytest.mark.parametrize(
    ("kind", "body", "outcome"),
    [
        ("application/json", None, ACCEPTED),
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
    assert (attempt.outcome, "is base_url right?" in attempt.reason) == (outcome, outcome is UNKNOWN)
    assert judged(evidence, statuses={200: ACCEPTED}).outcome is ACCEPTED
    assert judged(answered(204, headers=evidence.headers, body=body)).outcome is ACCEPTED


def test_the_words_for_a_login_page_name_html_and_no_other_text_of_the_server():
    page = {"Content-Type": "Text/HTML; charset=utf-8"}
    assert judged(answered(200, headers=page, body=b"<")).reason == "HTTP 200 text/html: is base_url right?"
    other = judged(answered(202, headers={"Content-Type": "user-1/x"}, body=b"<"))
    assert other.reason == "HTTP 202 with a body that is not JSON: is base_url right?"


@pytest.mark.parametrize("outcome", [{}, {409: ACCEPTED}])
@pytest.mark.parametrize("status", [200, 204])
def test_a_2xx_for_a_request_not_written_whole_is_unknown(status, outcome):
    assert judged(answered(status, written=False), statuses=outcome).outcome is UNKNOWN


def test_a_status_overridden_to_accepted_needs_the_whole_request_too():
    assert judged(answered(409, written=False), statuses={409: ACCEPTED}).outcome is UNKNOWN
    assert judged(answered(409), statuses={409: ACCEPTED}).outcome is ACCEPTED


def test_a_rejection_before_the_request_was_written_whole_is_still_a_rejection():
    assert judged(answered(413, written=False)).outcome is REJECTED


@pytest.mark.parametrize("status", [204, 200, 400, 408, 429, 500, 503])
def test_a_response_that_arrived_before_the_request_answers_nothing(status):
    stray = evidence(touched=True, reused=True, status=status, failure=Failure.STALE)
    before = repr(stray)
    attempt = judged(stray)
    assert (attempt.outcome, attempt.retryable) == (NOT_SENT, True)
    assert repr(stray) == before
    assert attempt.reason == str(Failure.STALE)


@pytest.mark.parametrize(("status", "outcome"), [(204, ACCEPTED), (400, REJECTED), (500, UNKNOWN)])
def test_a_mock_above_the_socket_is_believed_in_its_status(status, outcome):
    assert judged(evidence(status=status)).outcome is outcome


@pytest.mark.parametrize("failure", list(Failure))
def test_after_the_first_byte_no_failure_proves_anything(failure):
    started = evidence(touched=True, started_writing=True, failure=failure)
    assert (judged(started).outcome, judged(started).retryable) == (UNKNOWN, False)


@pytest.mark.parametrize("failure", list(Failure))
def test_before_the_first_byte_every_failure_is_not_sent_and_retryable_unless_it_needs_a_fix(failure):
    attempt = judged(evidence(touched=True, failure=failure))
    assert (attempt.outcome, attempt.retryable) == (NOT_SENT, failure not in NEEDS_A_FIX)


@pytest.mark.parametrize("failure", list(Failure))
def test_an_exception_of_a_mock_is_unknown_except_those_of_the_connector(failure):
    assert judged(evidence(failure=failure)).outcome is (NOT_SENT if failure in PROVES_UNSENT else UNKNOWN)


def test_tls_and_certificate_failures_need_a_fix():
    assert {Failure.TLS, Failure.CERTIFICATE} <= NEEDS_A_FIX <= PROVES_UNSENT | {Failure.SESSION}


def test_nothing_known_is_unknown():
    assert judged(Evidence()).outcome is UNKNOWN


def test_the_reason_names_the_failure_and_the_exceptions_class():
    broken = evidence(touched=True, started_writing=True, failure=Failure.RESET, reason="ClientOSError")
    assert judged(broken).reason == "the connection broke: ClientOSError"


def test_an_attempt_carries_the_retry_after_of_its_answer():
    assert judged(answered(429, retry_after=4.0)).retry_after == 4.0


def test_the_repr_of_evidence_quotes_nothing_of_the_answer():
    text = repr(answered(302, headers={"Location": "x"}, body=b"Dear Ada"))
    assert "302" in text
    assert "Location" not in text
    assert "Dear" not in text


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


def test_the_join_of_no_attempt_is_not_sent():
    assert join([]) is NOT_SENT


@pytest.mark.parametrize(("first", "second"), list(itertools.product(Outcome, repeat=2)))
def test_the_join_of_two_is_the_stronger(first, second):
    order = [NOT_SENT, REJECTED, UNKNOWN, ACCEPTED]
    assert join([first, second]) is max(first, second, key=order.index)


@given(st.lists(outcomes, min_size=1), st.lists(outcomes, min_size=1))
def test_the_join_does_not_depend_on_the_grouping(evidence, right):
    assert join([join(evidence), join(right)]) is join([*evidence, *right])


# -- what the service answered ------------------------------------------------------------------------------------


def test_an_attempt_has_the_first_4_kib_of_the_body():
    assert judged(answered(400, body=b"x" * 9000)).body == b"x" * 4096


def test_an_accepted_push_keeps_no_answer():
    attempt = judged(answered(200, headers={"Content-Type": "application/json", "X-Request-Id": "r-1"}))
    assert (attempt.headers, attempt.body, attempt.answer, attempt.request_id) == ({}, b"", "", None)


@pytest.mark.parametrize("key", ["sk-live.0815", 'a"b\\c/d', "k" * 4096])
def test_the_key_is_redacted_in_what_the_service_answered(key):
    echoes = [key.encode(), json.dumps({"key": key}).encode(), b"cut off: " + key.encode()[:-1]]
    for body in echoes:
        attempt = judged(answered(401, headers={"X-Echo": f"<{key}>", "X-Id": "1"}, body=body), key=Secret.of(key))
        assert key[:-1] not in f"{attempt.body.decode()} {attempt.body.decode('unicode_escape')}"
        assert b"***" in attempt.body
        assert attempt.headers == {"X-Echo": "<***>", "X-Id": "1"}


def test_a_key_of_a_few_letters_blanks_out_no_text():
    assert judged(answered(401, body=b"unknown key"), key=Secret.of("key")).body == b"unknown key"


def test_the_repr_of_an_attempt_shows_nothing_that_the_service_wrote():
    attempt = judged(answered(400, headers={"X": "Dear Ada"}, body=b"Dear Ada"))
    assert repr(attempt) == "Attempt(REJECTED, HTTP 400, 0.500 s)"
    assert attempt.__rich_repr__() == [("outcome", REJECTED), ("reason", "HTTP 400"), ("seconds", 0.5)]
    assert attempt.answer == "Dear Ada"


def tried(*several: Outcome) -> list[Attempt]:
    return [Attempt(outcome=outcome, started=float(number)) for number, outcome in enumerate(several)]


def test_a_verdict_joins_all_attempts_and_has_the_last_response():
    evidence = answered(429, retry_after=2.0)
    verdict = verdict_of(tried(UNKNOWN, REJECTED), evidence)
    assert verdict.outcome is UNKNOWN
    assert [attempt.started for attempt in verdict.attempts] == [0.0, 1.0]
    assert (verdict.status, verdict.retry_after, verdict.failure) == (429, 2.0, None)


def test_the_verdict_on_one_attempt_has_its_outcome():
    assert [verdict_of(tried(outcome), Evidence()).outcome for outcome in Outcome] == list(Outcome)


def test_a_verdict_on_no_attempt_is_not_sent_for_the_reason_given():
    verdict = verdict_of([], Evidence(), Failure.DEADLINE)
    assert (verdict.outcome, verdict.attempts, verdict.failure) == (NOT_SENT, (), Failure.DEADLINE)


def test_a_failure_of_the_client_overrides_the_failure_of_the_last_attempt():
    proof = evidence(touched=True, failure=Failure.REFUSED)
    assert verdict_of(tried(NOT_SENT), proof).failure is Failure.REFUSED
    assert verdict_of(tried(NOT_SENT), proof, Failure.BUDGET).failure is Failure.BUDGET
