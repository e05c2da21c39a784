"""The exception for a verdict: class, text and data, without user ids or texts of the service."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pushsdk
from pushsdk._core.error_mapping import error_for, partial_error
from pushsdk._core.error_texts import FIXES
from pushsdk._core.errors import (
    LIBRARY,
    ClaimStoreError,
    ClientClosedError,
    NotSentError,
    OutcomeUnknownError,
    PartialError,
    PushError,
    QueueFullError,
    RateLimitedError,
    RejectedError,
    RunInUseError,
    UnexpectedResponseError,
    ValidationError,
)
from pushsdk._core.operations import PUSH, Target
from pushsdk._core.outcome import Attempt, Failure, Headers, Outcome, Verdict
from pushsdk.cli.exit import SHELL

ACCEPTED = Outcome.ACCEPTED
REJECTED = Outcome.REJECTED
NOT_SENT = Outcome.NOT_SENT
UNKNOWN = Outcome.UNKNOWN
SECRETS = ("user-4711", "sk-live.0815", "Dear Ada", "/private/path", "token=abc")
TARGET = Target(PUSH, "https://push.example/api")
KINDS = [getattr(pushsdk, name) for name in pushsdk.__all__ if name.endswith("Error")]


def tried(outcome, status=None, reason="", **options):
    reason = reason or (f"HTTP {status}" if status else str(Failure.RESET))
    return Attempt(outcome=outcome, status=status, reason=reason, **options)


def refused(status, **options):
    answer = {name: options.pop(name) for name in ("headers", "body") if name in options}
    retryable = status in (408, 425, 429, 503)
    attempt = tried(REJECTED, status, retryable=retryable, retry_after=options.get("retry_after"), **answer)
    return Verdict(outcome=REJECTED, attempts=(attempt,), status=status, **options)


def test_each_error_has_an_outcome_and_its_place_in_the_tree():
    for kind in KINDS:
        error = kind("why")
        assert str(error) == "why"
        assert error.attempts == ()
        assert error.user_ids == ()
        expected = {OutcomeUnknownError: UNKNOWN, UnexpectedResponseError: ACCEPTED}.get(kind, NOT_SENT)
        assert error.outcome is (REJECTED if issubclass(kind, RejectedError) else expected)
        assert isinstance(error, PushError)
    assert issubclass(ValidationError, ValueError)
    not_sent = {ClaimStoreError, ClientClosedError, NotSentError, QueueFullError, RunInUseError}
    assert {kind for kind in KINDS if kind().retryable} == {*not_sent, RateLimitedError}


# -- what the service answered ------------------------------------------------------------------------------------


def test_a_text_has_the_plain_id_that_the_service_gave_to_the_request():
    for name, request_id, is_shown in [
        ("X-Request-Id", "Root=1-67;r:4/7+a_b", True),
        ("X-Correlation-ID", "r-1", True),
        ("X-Request-Id", "a\x1b[2J", False),
        ("X-Request-Id", "user@example.org", False),
        ("X-Request-Id", "x" * 101, False),
    ]:
        error = error_for(refused(400, headers=Headers({name: request_id})), target=TARGET)
        assert error.request_id == request_id
        assert (f", request id {request_id})" in str(error)) is ("request id" in str(error)) is is_shown


@pytest.mark.parametrize(
    ("base_url", "verdict", "asks"),
    [
        ("http://h:8443", {"failure": Failure.RESET, "is_first": True}, True),
        ("http://h:8443", {"failure": Failure.RESET}, False),  # the connection had carried an answer
        ("http://127.0.0.1:8443", {"failure": Failure.RESET, "is_first": True}, False),
        ("https://h:8443", {"failure": Failure.RESET, "is_first": True}, False),
    ],
)
def test_a_connection_over_http_that_breaks_at_once_asks_for_https(base_url, verdict, asks):
    attempt = tried(UNKNOWN, reason=str(verdict["failure"]))
    error = error_for(Verdict(outcome=UNKNOWN, attempts=(attempt,), **verdict), target=Target(PUSH, base_url))
    assert ("base_url says http://: does the service speak https?" in str(error)) is asks


def test_a_redirect_names_only_the_other_host():
    for status, location, host in [
        (300, "https://user:word@elsewhere.example:8443/private/path?token=abc#x", " to elsewhere.example:"),
        (308, "//elsewhere.example/x", " to elsewhere.example:"),
        (302, "/private/path", ", a redirect:"),
        (302, "https://\u202eevil.example/", ", a redirect:"),
        (302, "http://DISK-FULL of user-1, run: rm private", ", a redirect:"),
    ]:
        text = str(error_for(refused(status, headers={"Location": location})))
        assert host in text
        assert "set base_url" in text
        assert not any(word in text for word in ("private", "token", "word", "8443", "\x1b"))


# -- unknown and not sent ---------------------------------------------------------------------------------------


@given(
    st.sampled_from([REJECTED, NOT_SENT, UNKNOWN]),
    st.none() | st.sampled_from(Failure),
    st.lists(st.tuples(st.sampled_from([REJECTED, NOT_SENT, UNKNOWN]), st.integers(300, 599)), max_size=4),
)
def test_every_verdict_has_an_error_of_its_outcome_that_quotes_nothing_of_the_answer(outcome, failure, several):
    answer = {
        "headers": {"Location": "/private/path?token=abc", "X-Echo": "sk-live.0815"},
        "body": b"Dear Ada, user-4711",
    }
    attempts = tuple(tried(end, status, **answer) for end, status in [*several, (outcome, 400)])
    verdict = Verdict(outcome=outcome, attempts=attempts, status=attempts[-1].status, failure=failure)
    error = error_for(verdict, target=TARGET, user_ids=("user-4711",), external_id="user-4711")
    assert error.outcome == outcome
    assert error.attempts == attempts
    text = f"{error} {error!r} {error.args}"
    assert not any(secret in text for secret in SECRETS)
    assert error_for(verdict) is not error_for(verdict)


# -- partial ----------------------------------------------------------------------------------------------------


def part(outcome, *users, status=400, started=0.0):
    return users, Verdict(outcome=outcome, attempts=(tried(outcome, status, started=started),))


def test_users_with_different_outcomes_are_listed_in_the_order_of_the_call():
    error = partial_error(["a", "b", "c", "d"], [part(REJECTED, "d", "b", started=2.0), part(ACCEPTED, "c", "a")])
    assert type(error) is PartialError
    assert list(error.outcomes.items()) == [("a", ACCEPTED), ("b", REJECTED), ("c", ACCEPTED), ("d", REJECTED)]
    assert error.users(ACCEPTED) == ("a", "c")
    assert error.users(REJECTED) == ("b", "d")
    assert error.users(UNKNOWN) == ()
    assert error.user_ids == ("a", "b", "c", "d")
    assert [attempt.started for attempt in error.attempts] == [0.0, 2.0]


def test_the_text_has_the_cause_of_most_users_and_their_number():
    parts = [part(REJECTED, "a", status=404), part(REJECTED, "b"), part(REJECTED, "c"), part(ACCEPTED, "d")]
    error = partial_error([*"abcd"], parts)
    assert error.status == 400
    assert str(error) == (
        "users have different outcomes: 1 ACCEPTED, 3 REJECTED; see .outcomes. "
        "Don't repeat the whole call: it may push to some users again. "
        "Most often (2 users): rejected: HTTP 400 Bad Request [rejected-400]"
    )


# -- retryable -------------------------------------------------------------------------------------------------

UNSENT = tried(NOT_SENT, reason=str(Failure.REFUSED), retryable=True)
THROTTLED = tried(REJECTED, 429, retryable=True, retry_after=70.0)
TOO_EARLY = tried(REJECTED, 425, retryable=True)
BAD = tried(REJECTED, 400)
LOST = tried(UNKNOWN)


def verdict(*attempts, failure=None):
    last = attempts[-1]
    return Verdict(
        outcome=max((attempt.outcome for attempt in attempts), key=[NOT_SENT, REJECTED, UNKNOWN, ACCEPTED].index),
        attempts=attempts,
        status=last.status,
        retry_after=last.retry_after,
        failure=failure,
    )


@pytest.mark.parametrize(
    ("attempts", "failure", "expected"),
    [
        ([UNSENT], None, True),
        ([tried(NOT_SENT, reason=str(Failure.CERTIFICATE))], Failure.CERTIFICATE, False),
        ([THROTTLED], Failure.THROTTLED, True),
        ([TOO_EARLY, BAD], None, False),
        ([LOST, UNSENT], None, False),
    ],
)
def test_an_error_says_if_the_same_call_is_retryable(attempts, failure, expected):
    error = error_for(verdict(*attempts, failure=failure), user_ids=("a",))
    assert error.retryable is pickle.loads(pickle.dumps(error)).retryable is expected


def test_the_delay_of_a_job_is_what_the_service_asked_for_or_the_default_with_jitter(monkeypatch):
    for retry_after, options, least, most in [
        (None, {}, 10.0, 20.0),
        (30.0, {"default": 2.0}, 30.0, 32.0),
        (86400.0, {}, 600.0, 600.0),
    ]:
        monkeypatch.setattr(NotSentError, "retry_after", retry_after)
        delays = sorted({NotSentError(user_ids=(f"{number}",)).retry_delay(**options) for number in range(99)})
        assert least <= delays[0] <= delays[-1] <= most
        assert (len(delays) > 1) is (least < most)


def test_a_partial_error_tells_how_long_the_service_asked_to_wait():
    error = partial_error(["a", "b"], [(("a",), verdict(THROTTLED)), part(NOT_SENT, "b")])
    assert error.retryable
    assert error.retry_after == 70.0
    assert "repeat" not in str(error)
    assert error.code == "partial"


def test_a_job_that_no_retry_helps_has_no_delay():
    with pytest.raises(OutcomeUnknownError):
        OutcomeUnknownError().retry_delay()


# -- texts ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("names", [LIBRARY, SHELL])
def test_each_fix_has_a_name_for_its_options(names):
    assert names.keys() == LIBRARY.keys()
    for _, fix in FIXES:
        assert "{" not in fix.format_map({**names, "pause": "9 s", "when": "later", "request_id": "r-1"})
