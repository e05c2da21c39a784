"""The ``push`` fixture's object: what it says of the service, what it has it do, and how it fails."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from pushsdk.emulator import Emulator, Fault, ServiceLimits
from pushsdk.testing import PushInbox
from pushsdk.testing.inbox import EmulatorThread

ENDLESS = 60.0


def text_of(failing, *args, **kwargs):
    """What the expectation says when it fails."""
    with pytest.raises(AssertionError) as failed:
        failing(*args, **kwargs)
    return "\n".join([str(failed.value), *getattr(failed.value, "__notes__", ())])


# -- what was accepted ----------------------------------------------------------------------------------------------


def test_a_user_got_what_was_sent_with_its_placeholders_filled(inbox, send):
    assert send("ann", "bob", customFields={"name": "Ann"}) == 204
    (push,) = inbox.sent_to("ann")
    assert push.title == {"en": "Hello Ann", "de": "Hallo"}
    assert (push.subtitle, push.body) == ({}, {"en": "Your order is on its way"})
    assert push.user_ids == ("ann", "bob")
    assert push.message["title"]["en"] == "Hello {{ name | 'you' }}"
    assert (push.custom_fields, push.campaign) == ({"name": "Ann"}, None)


def test_without_a_field_the_fallback_is_shown(inbox, send):
    send("ann")
    assert inbox.sent_to("ann")[0].title["en"] == "Hello you"


def test_it_counts_what_was_accepted(inbox, send):
    send("ann", "bob")
    send("ann")
    send(name="spring", path="/v1/campaigns")
    assert (inbox.accepted("ann"), inbox.accepted("eve")) == (2, 0)
    assert inbox.users() == {"ann": 2, "bob": 1}
    assert inbox.duplicates() == {"ann": 2}
    assert [push.user_ids for push in inbox.pushes] == [("ann", "bob"), ("ann",)]
    assert [campaign.name for campaign in inbox.campaigns] == ["spring"]


def test_another_key_has_another_inbox(inbox, send):
    send("ann", key="somebody else's")
    assert (inbox.users(), inbox.sent_to("ann")) == ({}, [])


def test_its_page_and_its_address_are_the_emulators(inbox):
    assert inbox.base_url == inbox.emulator.base_url
    assert inbox.url == inbox.emulator.url
    assert repr(inbox) == f"PushInbox({inbox.base_url!r})"


def test_a_closed_inbox_is_empty_and_its_clock_is_back(host, inbox, send):
    send("ann")
    inbox.advance(500)
    inbox.close()
    assert inbox.users() == {}
    send("ann")
    assert abs(inbox.pushes[0].time - time.time()) < 100


# -- expectations ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wish",
    [
        {},
        {"title": "Hello you"},
        {"title": "Hallo", "language": "de"},
        {"title": "Hallo", "body": "Your order is on its way"},
        {"count": 2},
    ],
    ids=str,
)
def test_an_expected_push_is_given_back(inbox, send, wish):
    send("ann")
    send("ann", "bob")
    assert [push.user_ids for push in inbox.assert_sent("ann", **wish)] == [("ann",), ("ann", "bob")]
    assert [push.user_ids for push in inbox.assert_sent(**wish)] == [("ann",), ("ann", "bob")]


def test_a_campaign_is_expected_like_a_push(inbox, send):
    send(path="/v1/campaigns", name="spring")
    (push,) = inbox.assert_sent(title="Hallo")
    assert push.campaign == inbox.campaigns[0].uuid


@pytest.mark.parametrize(
    ("user", "wish", "said"),
    [
        ("eve", {}, 'Expected a push to "eve", got none.'),
        ("ann", {"count": 2}, 'Expected 2 pushes to "ann", got 1.'),
        ("ann", {"count": 0}, 'Expected 0 pushes to "ann", got 1.'),
        (None, {"count": 3}, "Expected 3 pushes, got 2."),
        ("ann", {"title": "Helo"}, 'Expected a push to "ann" with the title "Helo", got none.'),
        ("ann", {"title": "Hallo", "language": "en"}, 'with the title "Hallo" in en, got none.'),
        ("ann", {"title": "Hallo", "language": "fr"}, 'with the title "Hallo" in fr, got none.'),
        ("ann", {"title": "Hallo", "body": "x"}, 'with the title "Hallo" and the body "x", got none.'),
    ],
)
def test_a_push_that_is_missing_fails_the_test(inbox, send, user, wish, said):
    send("ann")
    send("bob")
    assert said in text_of(inbox.assert_sent, user, **wish)
    assert inbox.has_shown_summary


def test_a_text_that_is_not_there_is_shown_beside_those_that_are(inbox, send):
    send("ann", customFields={"name": "Ann"})
    assert text_of(inbox.assert_sent, "ann", title="Hello").splitlines() == [
        'Expected a push to "ann" with the title "Hello", got none.',
        '  title: en "Hello Ann", de "Hallo"',
        "",
        "The service got 1 request with this test's key, and accepted 1:",
        """  accepted  204  push to "ann"  en "Hello {{ name | 'you' }}", de "Hallo\"""",
    ]


def test_nothing_was_sent(inbox, send):
    inbox.assert_nothing_sent()
    send("ann")
    inbox.assert_nothing_sent("bob")
    assert text_of(inbox.assert_nothing_sent).startswith("Expected no push or campaign, got 1.\n")
    assert text_of(inbox.assert_nothing_sent, "ann").startswith('Expected no push to "ann", got 1.\n')


def test_what_was_refused_is_nothing_sent(inbox, send):
    with inbox.fault(Fault.status(500)):
        send("ann")
    inbox.assert_nothing_sent()


def test_users_who_got_the_same_push_twice_are_named(inbox, send):
    send("ann")
    send("ann", message={"title": {"en": "another"}})
    inbox.assert_no_duplicates()
    send("ann", "bob")
    told = text_of(inbox.assert_no_duplicates)
    assert told.startswith('1 user got the same push more than once:\n  "ann": 2 pushes\n\nThe service got 3 requests')


def test_requests_that_came_elsewhere_are_a_hint(inbox, send):
    send("ann", key="somebody else's")
    send("ann", path="/v2/push")
    assert text_of(inbox.assert_sent, "ann").endswith(
        "The service got no request with this test's key.\n"
        "2 requests came with another key or to another path: does the code use push.base_url and push.api_key?"
    )


def test_what_came_elsewhere_before_this_test_is_not_its_own(host, send):
    send("ann", key="somebody else's")
    later = PushInbox(host, api_key="later", label="later")
    assert "another key" not in later.summary()
    later.close()


# -- waiting --------------------------------------------------------------------------------------------------------


def soon(work):
    """Do it in another thread, once somebody waits."""
    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_what_is_there_is_not_waited_for(inbox, send):
    send("ann")
    assert [push.user_ids for push in inbox.wait_for("ann")] == [("ann",)]
    assert [push.user_ids for push in inbox.wait_for()] == [("ann",)]


@pytest.mark.parametrize("wish", [{"user_id": "bob"}, {"count": 2}, {"search": "status:204 user:bob"}], ids=str)
def test_it_waits_for_what_is_to_come(inbox, send, wish):
    send("ann")
    sending = soon(lambda: send("bob"))
    assert inbox.wait_for(**wish, timeout=ENDLESS)[-1].user_ids == ("bob",)
    sending.join()


async def test_an_async_test_awaits_it_and_its_loop_goes_on(inbox, send):
    sending = asyncio.create_task(asyncio.to_thread(send, "ann"))
    assert [push.user_ids for push in await inbox.until("ann", timeout=ENDLESS)] == [("ann",)]
    assert await sending == 204


async def test_the_sync_one_works_in_an_event_loop_too(inbox, send):
    sending = soon(lambda: send("ann"))
    assert inbox.wait_for("ann", timeout=ENDLESS)
    sending.join()


def test_a_user_id_is_found_whatever_is_in_it(inbox, send):
    user = 'a "quoted\\" one: is:refused'
    send(user)
    assert inbox.wait_for(user)


def test_refused_requests_are_waited_for_where_that_is_asked(inbox, send):
    inbox.limits = ServiceLimits(max_users=1)
    send("ann", "bob")
    send("ann")
    assert inbox.wait_for(search="is:refused", count=1) == []
    assert "got 1." in text_of(inbox.wait_for, search="is:refused", count=2, timeout=0)


def test_a_condition_is_looked_at_whenever_something_changes(inbox, send):
    sending = soon(lambda: [send("ann") for _ in range(3)])
    inbox.wait_for(condition=lambda: inbox.accepted("ann") == 3, timeout=ENDLESS)
    sending.join()


def test_a_wait_in_vain_says_what_it_waited_for(inbox, send):
    send("bob")
    told = text_of(inbox.wait_for, "ann", count=2, timeout=0.01)
    assert told.startswith('Waited 0.01 s for 2 requests that the search `user:"ann" is:accepted` finds, got none.\n')
    assert 'push to "bob"' in told
    assert "event loop" not in told


def test_a_condition_in_vain_is_said(inbox):
    assert text_of(inbox.wait_for, condition=lambda: False, timeout=0).startswith(
        "Waited 0 s for a condition to come true.\n"
    )


async def test_a_wait_in_vain_in_an_event_loop_says_that_it_held_that_up(inbox):
    assert "use `await push.until(...)`" in text_of(inbox.wait_for, "ann", timeout=0)


async def test_one_that_is_awaited_holds_nothing_up(inbox):
    with pytest.raises(AssertionError, match=r"Waited 0\.01 s") as failed:
        await inbox.until("ann", timeout=0.01)
    assert not hasattr(failed.value, "__notes__")


# -- faults and limits ----------------------------------------------------------------------------------------------


def test_a_fault_acts_within_its_with(inbox, send):
    with inbox.fault(Fault.status(503, first=1)) as fault:
        assert fault.hits == 0
        assert (send("ann"), send("ann")) == (503, 204)
        assert fault.hits == 1
    assert fault.hits == 1
    assert send("ann") == 204


def test_an_inner_fault_is_tried_first_and_the_outer_one_goes_on_counting(inbox, send):
    with inbox.fault(Fault.status(503, first=2)) as outer:
        assert send("ann") == 503
        with inbox.fault(Fault.status(429, first=1)) as inner:
            assert [send("ann") for _ in range(3)] == [429, 503, 204]
        assert send("ann") == 204
    assert (outer.hits, inner.hits) == (2, 1)


def test_two_faults_in_one_with_statement_both_fire(inbox, send):
    with inbox.fault(Fault.status(503, first=1)), inbox.fault(Fault.status(429, first=1)):
        assert [send("ann") for _ in range(3)] == [429, 503, 204]


def test_other_inboxes_do_not_notice(host, inbox, send):
    with inbox.fault(Fault.status(503), required=False):
        assert send("ann", key="somebody else's") == 204


def unharmed(faulty, act=lambda: None):
    with faulty:
        act()


def test_a_fault_that_never_fired_fails_the_test(inbox, send):
    send("before")
    told = text_of(
        unharmed, inbox.fault(Fault.status(503, headers={"Retry-After": "1"}, user="eve")), lambda: send("ann")
    )
    assert told.splitlines()[:2] == [
        "This fault never fired: no request met the conditions. A test that may pass without it says `required=False`.",
        "  Fault.status(code=503, headers={'Retry-After': '1'}, user='eve')",
    ]
    assert 'push to "ann"' in told
    assert "before" not in told


def test_each_of_several_faults_has_to_fire(inbox, send):
    faults = inbox.fault(Fault.status(503, first=1), Fault.hang(user="eve"), Fault.delay(0.1, user="eve", name="slow"))
    told = text_of(unharmed, faults, lambda: send("ann"))
    assert told.startswith("These faults never fired: ")
    assert [line for line in told.splitlines() if line.startswith("  Fault.")] == [
        "  Fault.hang(accepted=False, user='eve')",
        "  Fault.delay(seconds=0.1, name='slow', user='eve')",
    ]


def test_one_of_a_presets_faults_has_to_fire(inbox, send):
    with inbox.faults("outage"):
        assert send("ann") is None
    told = text_of(unharmed, inbox.faults("flaky", seed=1))
    assert told.startswith("None of these faults ever fired: no request came in its `with`.")


def test_faults_that_are_drawn_are_told_apart_from_those_that_did_not_match(inbox, send):
    told = text_of(unharmed, inbox.faults("flaky", seed=1), lambda: send("ann"))
    assert "ever fired: none won its draw (seed=1)." in told
    told = text_of(unharmed, inbox.fault(Fault.hang(user="eve"), Fault.hang(probability=0)), lambda: send("ann"))
    assert "never fired: no request met the conditions." in told


def test_no_fault_at_all_is_an_error(inbox):
    with pytest.raises(ValueError, match=r"which fault\? push\.fault\(Fault\.status\(503\)\)"):
        inbox.fault()


def test_a_preset_that_is_not_there_is_said_at_once(inbox):
    with pytest.raises(ValueError, match="there are: brownout"):
        inbox.faults("nonsense")


def test_a_fault_may_be_told_that_it_need_not_fire(inbox):
    unharmed(inbox.fault(Fault.hang(), required=False))
    unharmed(inbox.faults("flaky", required=False))


def test_another_error_is_not_hidden_but_hears_of_it(inbox):
    with pytest.raises(ZeroDivisionError) as failed, inbox.fault(Fault.hang()):
        _ = 1 / 0
    assert failed.value.__notes__[0].startswith("This fault never fired")


def test_an_interruption_is_told_as_it_is(inbox):
    with pytest.raises(KeyboardInterrupt) as failed, inbox.fault(Fault.hang()):
        raise KeyboardInterrupt
    assert not hasattr(failed.value, "__notes__")


def test_the_rules_of_the_session_hold_again_afterwards(inbox, send):
    inbox.emulator.faults = [Fault.status(500, user="eve")]
    try:
        with inbox.fault(Fault.status(503, first=1)):
            assert (send("eve"), send("eve")) == (503, 500)
        inbox.emulator.faults = []
        assert send("eve") == 204
    finally:
        inbox.emulator.faults = []


def test_limits_are_the_tests_own(inbox, send):
    inbox.limits = ServiceLimits(max_users=1)
    assert inbox.limits.max_users == 1
    assert (send("ann", "bob"), send("ann", "bob", key="somebody else's")) == (413, 204)


def test_the_clock_is_set_forward_for_this_test(inbox, send):
    inbox.advance(1000)
    inbox.advance(1000)
    send("ann")
    assert abs(inbox.pushes[0].time - time.time() - 2000) < 100


# -- the thread -----------------------------------------------------------------------------------------------------


def test_what_opening_raises_is_raised_where_it_was_asked_for(host):
    with (
        pytest.raises(OSError, match="in use"),
        EmulatorThread(Emulator(port=int(host.emulator.url.rpartition(":")[2]))),
    ):
        raise AssertionError("it opened")


def test_the_end_of_the_with_is_the_end_of_the_thread():
    before = threading.active_count()
    with EmulatorThread(Emulator()) as running:
        assert threading.active_count() == before + 1
        url = running.emulator.base_url
    assert threading.active_count() == before
    assert url.startswith("http://127.0.0.1:")
