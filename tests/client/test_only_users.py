"""``only_users``: pushes go to these users, and everybody else is NOT_SENT with that reason."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.fake_service import MESSAGE, FakeService, client_of, reset_after
from support.virtual_time import run, virtual

from pushsdk import (
    AsyncPushClient,
    Batching,
    ConfigurationError,
    NotSentError,
    Outcome,
    PartialError,
    PushClient,
    PushError,
    PushRequest,
)
from pushsdk.claims import MemoryClaims

URL = "https://push.example"
IDS = st.lists(st.sampled_from("abcdef"), min_size=1, max_size=6, unique=True)
WHY = "not among the users that pushes are limited to"


async def outcomes(users, send):
    """Return the outcome for each user of a call."""
    try:
        await send
    except PartialError as error:
        return dict(error.outcomes)
    except PushError as error:
        return dict.fromkeys(error.user_ids, error.outcome)
    return dict.fromkeys(users, Outcome.ACCEPTED)


def expected(users, only):
    return {user: Outcome.ACCEPTED if user in only else Outcome.NOT_SENT for user in users}


@given(st.lists(IDS, min_size=1, max_size=4), st.sets(st.sampled_from("abc")), st.booleans())
def test_a_send_reaches_only_these_users_also_with_a_key_or_merged(calls, only, keyed):
    service = FakeService()

    async def story():
        async with client_of(service, only_users=only, claims=MemoryClaims() if keyed else None) as client:
            keys = [{"idempotency_key": f"job-{number}"} if keyed else {} for number in range(len(calls))]
            sends = [
                outcomes(users, client.send(users, MESSAGE, **key)) for users, key in zip(calls, keys, strict=True)
            ]
            assert await asyncio.gather(*sends) == [expected(users, only) for users in calls]
            users = [user for call in calls for user in call]
            submitted = [outcomes([user], client.submit(user, MESSAGE)) for user in users]
            assert await asyncio.gather(*submitted) == [expected([user], only) for user in users]
        assert {user for request in service.requests for user in request.users} <= only

    run(story(), collect=False)


@given(IDS, st.sets(st.sampled_from("abc")), st.booleans(), st.integers(1, 3))
def test_a_run_reaches_only_these_users_and_the_others_stay_planned(users, only, each, size):
    service = FakeService()

    async def story():
        async with client_of(service, only_users=only, batching=Batching(max_users=size)) as client:
            if each:
                report = await client.send_each([PushRequest(user_ids=[user], message=MESSAGE) for user in users])
            else:
                report = await client.broadcast(users, MESSAGE)
            assert {row.user_id: row.outcome for row in report.rows()} == expected(users, only)
            others = len({*users} - only)
            assert report.reasons == ({WHY: others} if others else {})
            assert {type(reason) for reason in report.reasons} <= {str}
        assert {user for request in service.requests for user in request.users} == only & {*users}

    run(story(), collect=False)


@virtual
async def test_unknown_users_stay_unknown_if_they_may_not_be_resent(tmp_path):
    async with client_of(FakeService(then=lambda _: reset_after())) as client:
        await client.broadcast(["a", "b"], MESSAGE, run=tmp_path / "a.run")
    async with client_of(FakeService(), only_users={"b"}) as client:
        report = await client.resume(tmp_path / "a.run", on_unknown="resend")
    assert [row.outcome for row in report.rows()] == [Outcome.UNKNOWN, Outcome.ACCEPTED]


@virtual
async def test_the_error_names_the_option_and_a_retry_does_not_help():
    async with client_of(FakeService(), only_users={"a"}) as client:
        with pytest.raises(NotSentError, match=f"^not sent: {WHY} .*: see only_users ") as alone:
            await client.send("b", MESSAGE)
        with pytest.raises(PartialError, match=rf"1 ACCEPTED, 2 NOT_SENT; .* \(2 users\): not sent: {WHY}") as mixed:
            await client.send(["c", "a", "b"], MESSAGE)
        assert client.stats().not_sent == 3
    assert not alone.value.retryable
    assert not mixed.value.retryable
    assert mixed.value.users(Outcome.NOT_SENT) == ("c", "b")


async def test_a_campaign_is_refused():
    async with client_of(FakeService(), only_users={"a"}) as client:
        with pytest.raises(ConfigurationError, match="a segment, which can't be limited to only_users"):
            await client.create_campaign({})


@pytest.mark.parametrize("make", [AsyncPushClient, PushClient])
def test_the_client_says_so_and_refuses_anything_but_a_set_of_ids(make, caplog):
    for value in "ann", ["ann"], {1}:
        with pytest.raises(ConfigurationError, match=r"^only_users must be a set of user ids, for .*; got [a-z]+$"):
            make(URL, "key", only_users=value)
    assert not caplog.records
    make(URL, "key", only_users={"ann"})
    assert caplog.messages == ["pushes are limited to 1 user (only_users): all others are NOT_SENT"]
