"""Stop policies: settings, shares, outages, and the texts of stop reasons."""

import math
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pushsdk._core.errors import ConfigurationError
from pushsdk._core.outcome import Outcome
from pushsdk._core.stop_policy import StopMonitor, StopPolicy

ACCEPTED, REJECTED, UNKNOWN = Outcome.ACCEPTED, Outcome.REJECTED, Outcome.UNKNOWN
STATUS = {ACCEPTED: 204, REJECTED: 400, UNKNOWN: 502}


def watch(**settings: object) -> StopMonitor:
    watch = StopMonitor(StopPolicy(**settings))
    watch.started(0.0)
    return watch


def settle(watch: StopMonitor, outcomes: Iterable[Outcome], *, users: int = 100) -> int:
    """Settle one request a second with these outcomes. Return the number of requests until the run stops."""
    for number, outcome in enumerate(outcomes, 1):
        watch.settled(outcome, users, STATUS[outcome], float(number))
        if watch.stop_reason(float(number)) is not None:
            return number
    return 0


# -- the settings -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["rejected", "unknown"])
@pytest.mark.parametrize("share", [0, -0.1, 1.01, 50, math.nan, math.inf, True, "0.5"])
def test_a_share_is_a_number_above_0_and_at_most_1(name, share):
    with pytest.raises(ConfigurationError, match=rf"StopPolicy\.{name} must be a share .* 0\.5 for half of the users"):
        StopPolicy(**{name: share})


@pytest.mark.parametrize("after", [0, -1, 1.5, True, None, "2000"])
def test_after_is_a_whole_number(after):
    with pytest.raises(ConfigurationError, match=r"StopPolicy\.after must be a whole number, 1 or more"):
        StopPolicy(after=after)


@pytest.mark.parametrize("seconds", [0, -1, math.inf, math.nan, True, "600"])
def test_max_outage_is_a_number_of_seconds(seconds):
    with pytest.raises(ConfigurationError, match=r"StopPolicy\.max_outage must be a number of seconds greater than 0"):
        StopPolicy(max_outage=seconds)


def test_all_may_be_off_and_the_limits_of_what_makes_sense_do():
    assert StopPolicy.off() == StopPolicy(rejected=None, unknown=None, max_outage=None)
    StopPolicy(rejected=1, unknown=1e-9, after=1, max_outage=0.001)


# -- runs that are not stopped ----------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [None, 0, 200, 400, 401, 404, 413, 429, 500, 503])
def test_no_single_status_stops_it_at_once(status):
    watched = watch()
    watched.settled(REJECTED, 1000, status, 1.0)
    watched.released(status, 1.0)
    assert watched.stop_reason(1.0) is None


# -- shares -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("outcome", "advice"), [(REJECTED, "needs a new run in a new file"), (UNKNOWN, "are skipped")])
def test_a_service_that_accepts_no_user_stops_the_run_after_so_many_users(outcome, advice):
    watched = watch()
    assert settle(watched, [outcome] * 100, users=100) == 20
    reason = watched.stop_reason(20.0)
    share = {REJECTED: "50", UNKNOWN: "25"}[outcome]
    assert reason.startswith(
        f"100.0 % of the last 2,000 users are {outcome.value} (the last of them: HTTP {STATUS[outcome]}), "
        f"the stop policy allows {share} %. "
    )
    assert advice in reason
    assert "then resume" in reason


def test_the_reason_says_if_there_was_no_answer():
    watched = watch()
    for number in range(20):
        watched.settled(UNKNOWN, 1000, None, float(number))
    assert "(the last of them: no answer)" in watched.stop_reason(20.0)


def test_fewer_than_20_requests_prove_nothing_however_many_users_they_have():
    assert settle(watch(), [REJECTED] * 100, users=10_000) == 20


def test_fewer_users_than_it_is_set_to_prove_nothing_however_many_requests_they_are():
    assert settle(watch(after=500), [REJECTED] * 1000, users=1) == 500


def test_users_count_not_requests():
    watched = watch(rejected=0.5)
    for number in range(100):
        watched.settled(REJECTED, 1, 400, float(number))
        watched.settled(ACCEPTED, 1000, 204, float(number))
    assert watched.stop_reason(100.0) is None
    for number in range(5):
        watched.settled(REJECTED, 10_000, 400, 100.0 + number)
    assert watched.stop_reason(105.0) is not None


@pytest.mark.parametrize(
    ("settings", "outcomes", "stops"),
    [
        ({"rejected": 0.5}, [ACCEPTED, REJECTED], True),
        ({"rejected": 0.51}, [ACCEPTED, REJECTED], False),
        ({"rejected": None}, [REJECTED, REJECTED], False),
        ({"unknown": 0.5}, [ACCEPTED, UNKNOWN], True),
        ({"unknown": 0.51}, [ACCEPTED, UNKNOWN], False),
        ({"unknown": None}, [UNKNOWN, UNKNOWN], False),
        ({"rejected": 0.6, "unknown": 0.6}, [UNKNOWN, REJECTED], False),
        ({"rejected": 1}, [REJECTED, REJECTED], True),
        ({}, [ACCEPTED, ACCEPTED], False),
    ],
)
def test_each_share_has_a_separate_limit(settings, outcomes, stops):
    assert (settle(watch(**settings), outcomes * 100) > 0) is stops


def test_what_begins_to_fail_after_hours_is_noticed_as_soon_as_what_fails_from_the_start():
    watched = watch()
    assert settle(watched, [ACCEPTED] * 100_000) == 0
    assert settle(watched, [REJECTED] * 100) <= 40
    watched = watch()
    assert settle(watched, [ACCEPTED] * 100_000) == 0
    assert settle(watched, [UNKNOWN] * 100) <= 20


def test_what_failed_long_ago_is_forgotten():
    watched = watch()
    assert settle(watched, [REJECTED] * 19 + [ACCEPTED] * 60) == 0
    assert settle(watched, ([ACCEPTED] * 3 + [REJECTED]) * 1000) == 0


def test_one_gateway_error_in_twenty_and_one_stale_id_in_three_stop_nothing():
    assert settle(watch(), ([UNKNOWN] + [ACCEPTED] * 19) * 500, users=1000) == 0
    assert settle(watch(), [REJECTED, ACCEPTED, ACCEPTED] * 10_000, users=1) == 0


def is_too_much(stretch: list[tuple[Outcome, int]], after: int) -> bool:
    total = sum(users for _, users in stretch)
    failed = {kind: sum(users for outcome, users in stretch if outcome is kind) for kind in Outcome}
    return (
        len(stretch) >= 20 and total >= after and (failed[REJECTED] >= 0.5 * total or failed[UNKNOWN] >= 0.25 * total)
    )


@given(st.lists(st.tuples(st.sampled_from(Outcome), st.integers(1, 5000)), max_size=300), st.integers(1, 5000))
def test_a_share_stops_the_run_only_if_some_stretch_of_the_run_has_that_share(script, after):
    watched = watch(after=after, max_outage=None)
    for number, (outcome, users) in enumerate(script):
        watched.settled(outcome, users, 400, 0.0)
        if watched.stop_reason(0.0) is not None:
            stretches = [script[begin : number + 1] for begin in range(number + 1)]
            assert any(is_too_much(stretch, after) for stretch in stretches)
            break
    else:
        last = script[-40:]
        assert not (
            len(last) == 40
            and sum(u for _, u in script[-20:]) >= after
            and all(outcome is REJECTED for outcome, _ in last)
        )


# -- an outage --------------------------------------------------------------------------------------------------


def test_so_long_without_an_acceptance_stops_the_run():
    watched = watch(max_outage=600.0)
    watched.released(503, 599.9)
    assert watched.stop_reason(599.9) is None
    watched.released(503, 4000.0)
    assert watched.stop_reason(4000.0) == (
        "nothing was accepted for 4,000 s (last: HTTP 503), the stop policy allows 600 s. "
        "Check that the service is up, then resume"
    )


def test_it_names_the_last_trouble_if_there_was_no_answer():
    watched = watch(max_outage=600.0)
    watched.released(None, 600.0, "connection refused")
    assert "nothing was accepted for 600 s (last: connection refused), " in watched.stop_reason(600.0)


def test_each_acceptance_begins_it_anew():
    watched = watch(max_outage=600.0)
    for now in range(0, 6000, 500):
        watched.settled(ACCEPTED, 1, 204, float(now))
        watched.released(None, now + 499.0)
    assert watched.stop_reason(6000.0) is None
    watched.settled(UNKNOWN, 1, None, 6100.0)
    assert watched.stop_reason(6100.0) is not None


def test_the_planning_is_no_part_of_it():
    watched = StopMonitor(StopPolicy(max_outage=10.0))
    assert watched.stop_reason(1e6) is None
    watched.started(1e6)
    watched.released(429, 1e6 + 9)
    assert watched.stop_reason(1e6 + 9) is None


def test_a_run_never_stops_during_a_pause_but_at_the_next_failure():
    watched = watch(max_outage=600.0)
    watched.released(429, 1.0)
    for now in (600.0, 3000.0, 3601.0, 4200.0):
        assert watched.stop_reason(now, paused_until=3601.0) is None
    watched.released(429, 3602.0)
    assert "nothing was accepted for 3,602 s" in watched.stop_reason(3602.0, paused_until=7202.0)


def test_or_by_the_next_success_saved():
    watched = watch(max_outage=600.0)
    watched.released(429, 1.0)
    watched.settled(ACCEPTED, 1, 204, 3602.0)
    watched.released(429, 3603.0)
    assert watched.stop_reason(3603.0) is None


def test_requests_that_never_end_are_an_outage_too():
    watched = watch(max_outage=600.0)
    watched.settled(ACCEPTED, 1, 204, 10.0)
    assert watched.stop_reason(609.9) is None
    assert "nothing was accepted for 610 s (last: no answer at all)" in watched.stop_reason(620.0)


def test_no_outage_stops_the_run_if_max_outage_is_none():
    watched = watch(max_outage=None)
    watched.released(503, 1e9)
    assert watched.stop_reason(1e9) is None


def test_the_first_reason_stays():
    watched = watch()
    reason = watched.stop_reason(601.0)
    assert reason is not None
    watched.settled(ACCEPTED, 1, 204, 602.0)
    assert watched.stop_reason(1e6) == reason
