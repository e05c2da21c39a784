"""The start of a campaign by schedule and time, and its explanation."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pushsdk.emulator.campaigns.lifecycle import start_of

NOW = 1_795_255_200.0  # 2026-11-21 10:00 UTC
YEARS = 10 * 366 * 86_400
BY_HAND = "waits until it is started by hand"


@pytest.mark.parametrize(
    ("type_", "start_ts", "at", "reading"),
    [
        ("START_NOW", None, NOW, "START_NOW: starts at once"),
        (None, None, NOW, "neither a type nor a startTs: starts at once"),
        ("X" * 40, None, None, f"type {'X' * 40} without a startTs: {BY_HAND}"),
        ("AT", 1_795_258_800_500, NOW + 3600.5, "startTs read as milliseconds: 2026-11-21 11:00 UTC: waits for it"),
        ("START_NOW", 1_795_255_201, NOW + 1, "startTs read as seconds: 2026-11-21 10:00 UTC: START_NOW waits for it"),
        ("AT", 1_795_255_141, NOW, "startTs read as seconds: 2026-11-21 09:59 UTC: starts at once"),
        ("AT", 1_795_255_140, NOW, "startTs read as seconds: 2026-11-21 09:59 UTC, which is past: starts at once"),
        ("AT", int(NOW) + YEARS, NOW + YEARS, "startTs read as seconds: 2036-11-28 10:00 UTC: waits for it"),
        ("AT", -1, None, f"startTs is negative: {BY_HAND}"),
        (
            *("START_NOW", 10**11 - 1, None),
            f"startTs read as seconds is over ten years ahead, give it in seconds or milliseconds: {BY_HAND}",
        ),
        (
            *(None, int(NOW) * 10**6, None),
            f"startTs read as milliseconds is over ten years ahead, give it in seconds or milliseconds: {BY_HAND}",
        ),
    ],
)
def test_a_schedule_is_read_as_a_start_and_says_how(type_, start_ts, at, reading):
    assert start_of(type_, start_ts, NOW) == (at, reading)


@given(st.none() | st.text(), st.none() | st.integers(), st.floats(0, 4e9))
@example("AT", 10**11 - 1, 0.0)
@example("AT", 253_402_300_800_000, 4e9)
@example("AT", 10**400, 0.0)
def test_any_schedule_can_be_read_and_never_starts_in_the_past(type_, start_ts, now):
    start, reading = start_of(type_, start_ts, now)
    assert start is None or now <= start <= now + YEARS + 1
    assert reading
