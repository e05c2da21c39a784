"""Stop policies: shares, outages, and the texts of stop reasons."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pushsdk._core.outcome import Outcome
from pushsdk._core.stop_policy import StopMonitor, StopPolicy

ACCEPTED = Outcome.ACCEPTED
REJECTED = Outcome.REJECTED
UNKNOWN = Outcome.UNKNOWN
USERS = st.integers(1, 5000)
STATUS = {ACCEPTED: 204, REJECTED: 400, UNKNOWN: 502}


def watch(**settings):
    return StopMonitor(StopPolicy(**settings), 0.0)


def settle(watch, outcomes, *, users=100):
    """Settle one request a second with these outcomes. Return the number of requests until the run stops."""
    for number, outcome in enumerate(outcomes, 1):
        watch.settled(outcome, users, STATUS[outcome], float(number))
        if watch.stop_reason(float(number)) is not None:
            return number
    return 0


# -- shares -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outcome", "share", "advice"),
    [(REJECTED, "50", "needs a new run, which pushes to all"), (UNKNOWN, "25", "are skipped")],
)
def test_a_service_that_accepts_no_user_stops_the_run_after_so_many_users(outcome, share, advice):
    watched = watch()
    assert settle(watched, [outcome] * 100, users=100) == 20
    reason = watched.stop_reason(20.0)
    assert reason.startswith(
        f"100.0 % of the last 2,000 users are {outcome.value} (the last of them: HTTP {STATUS[outcome]}), "
        f"the stop policy stops at {share} %. "
    )
    assert advice in reason
    assert "then resume" in reason


@pytest.mark.parametrize(("after", "users", "requests"), [(2000, 10_000, 20), (500, 1, 500)])
def test_few_requests_prove_nothing_and_neither_do_few_users(after, users, requests):
    assert settle(watch(after=after), [REJECTED] * 1000, users=users) == requests


def test_what_failed_long_ago_is_forgotten_and_what_begins_to_fail_after_hours_is_noticed_as_soon():
    for outcome, requests in ((REJECTED, 40), (UNKNOWN, 20)):
        watched = watch()
        assert settle(watched, [outcome] * 10 + [ACCEPTED] * 10_000) == 0
        assert 0 < settle(watched, [outcome] * 100) <= requests


def is_too_much(stretch, after):
    total = sum(users for _, users in stretch)
    failed = {kind: sum(users for outcome, users in stretch if outcome is kind) for kind in Outcome}
    return (
        len(stretch) >= 20 and total >= after and (failed[REJECTED] >= 0.5 * total or failed[UNKNOWN] >= 0.25 * total)
    )


@given(st.lists(st.tuples(st.sampled_from(Outcome), USERS), min_size=20, max_size=300), USERS)
def test_a_share_stops_the_run_only_if_some_stretch_of_the_run_has_that_share(script, after):
    watched = watch(after=after, max_outage=None)
    for number, (outcome, users) in enumerate(script):
        watched.settled(outcome, users, 400, 0.0)
        if watched.stop_reason(0.0) is not None:
            assert any(is_too_much(script[begin : number + 1], after) for begin in range(number + 1))
            break


# -- an outage --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "trouble", "last"),
    [(503, "", "HTTP 503"), (None, "connection refused", "connection refused"), (None, "", "no answer")],
)
def test_so_long_without_an_acceptance_stops_the_run_whatever_its_requests_end_with(status, trouble, last):
    watched = watch(max_outage=600.0)
    watched.released(status, 599.9, trouble)
    assert watched.stop_reason(599.9) is None
    watched.released(status, 4000.0, trouble)
    assert watched.stop_reason(4000.0) == (
        f"nothing was accepted for 4,000 s (last: {last}), the stop policy stops at 600 s. "
        "Check that the service is up, then resume"
    )


@pytest.mark.parametrize("accepted", [False, True])
def test_a_run_never_stops_during_a_pause_but_at_a_failure_after_it_unless_a_success_comes_first(accepted):
    watched = watch(max_outage=600.0)
    watched.released(429, 1.0)
    for now in (600.0, 3000.0, 3601.0, 4200.0):
        assert watched.stop_reason(now, paused_until=3601.0) is None
    if accepted:
        watched.settled(ACCEPTED, 1, 204, 3602.0)
    watched.released(429, 3602.0)
    reason = watched.stop_reason(3602.0, paused_until=7202.0)
    assert (reason is None) is accepted
    assert accepted or "nothing was accepted for 3,602 s" in reason


def test_requests_that_never_end_are_an_outage_too_unless_it_is_off():
    for seconds, last in ((600.0, "(last: no answer at all)"), (None, None)):
        watched = watch(max_outage=seconds)
        watched.settled(ACCEPTED, 1, 204, 10.0)
        assert watched.stop_reason(609.9) is None
        reason = watched.stop_reason(620.0)
        assert reason is last or last in reason
