"""The object of the ``push`` fixture: what it reports of the service, faults and limits, and its failures."""

import asyncio
import threading
import time

import pytest

from pushsdk.emulator import Emulator, Fault, ServiceLimits
from pushsdk.testing import PushInbox
from pushsdk.testing.inbox import in_thread

LONG = 60.0  # seconds


def text_of(failing, *args, **kwargs):
    """Return the message and the notes of a failed expectation."""
    with pytest.raises(AssertionError) as failed:
        failing(*args, **kwargs)
    return "\n".join([str(failed.value), *getattr(failed.value, "__notes__", ())])


# -- what was accepted ----------------------------------------------------------------------------------------------


def test_accepted_pushes_and_campaigns_are_shown_with_placeholders_filled_and_counted(inbox, send):
    assert send("ann", "bob", customFields={"name": "Ann"}) == 204
    send("ann")
    send("ann")
    send(name="spring", path="/v1/campaigns")
    push, *_ = inbox.sent_to("ann")
    assert push.title == {"en": "Hello Ann", "de": "Hallo"}
    assert push.subtitle == {}
    assert push.body == {"en": "Your order is on its way"}
    assert push.user_ids == ("ann", "bob")
    assert push.custom_fields == {"name": "Ann"}
    assert push.campaign is None
    assert push.message["title"]["en"] == "Hello {{ name | 'you' }}"
    assert inbox.accepted("ann") == 3
    assert inbox.accepted("eve") == 0
    assert inbox.users() == {"ann": 3, "bob": 1}
    assert inbox.duplicates() == {"ann": 2}
    assert [push.user_ids for push in inbox.pushes] == [("ann", "bob"), ("ann",), ("ann",)]
    assert [campaign.request["name"] for campaign in inbox.campaigns] == ["spring"]
    assert inbox.assert_sent(title="Hallo")[-1].campaign == inbox.campaigns[0].uuid


def test_closing_empties_the_inbox_and_resets_the_clock(emulator, inbox, send):
    send("ann")
    inbox.advance(500)
    inbox.close()
    assert inbox.users() == {}
    send("ann")
    assert abs(inbox.pushes[0].time - time.time()) < 100


# -- expectations ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wish",
    [{}, {"title": "Hallo", "language": "de"}, {"title": "Hallo", "body": "Your order is on its way"}, {"count": 2}],
)
def test_assert_sent_returns_the_matching_pushes(inbox, send, wish):
    send("ann")
    send("ann", "bob")
    assert [push.user_ids for push in inbox.assert_sent("ann", **wish)] == [("ann",), ("ann", "bob")]
    assert [push.user_ids for push in inbox.assert_sent(**wish)] == [("ann",), ("ann", "bob")]


@pytest.mark.parametrize(
    ("expect", "text"),
    [
        (lambda inbox: inbox.assert_sent("eve"), 'Expected a push to "eve", got none.\n'),
        (lambda inbox: inbox.assert_sent(title="Bye"), 'Expected a push with the title "Bye", got none.\n'),
        (lambda inbox: inbox.assert_sent("ann", count=3), 'Expected 3 pushes to "ann", got 2.\n'),
        (lambda inbox: inbox.assert_sent("ann", title="Hallo", language="en"), ' the title "Hallo" in en, got none.\n'),
        (lambda inbox: inbox.assert_sent(title="Hallo", body="x"), ' the title "Hallo" and the body "x", got none.\n'),
        (lambda inbox: inbox.assert_nothing_sent(), "Expected no push or campaign, got 3.\n"),
        (lambda inbox: inbox.assert_nothing_sent("bob"), 'Expected no push to "bob", got 1.\n'),
        (
            lambda inbox: inbox.assert_no_duplicates(),
            '1 user received the same push more than once:\n  "ann": 2 pushes\n\nThe service received 3 requests',
        ),
        (
            lambda inbox: inbox.wait_for("ann", count=3, timeout=0.01),
            'Waited 0.01 s for 3 requests that the search `user:"ann" is:accepted` finds, got 2.\n',
        ),
    ],
)
def test_an_expectation_that_is_not_met_says_what_was_received(inbox, send, expect, text):
    for expected in (inbox.assert_nothing_sent, inbox.assert_no_duplicates):
        expected()
    for user in "ann", "ann", "bob":
        send(user)
    inbox.assert_nothing_sent("")
    failure = text_of(expect, inbox)
    assert text in failure
    assert 'push to "bob"' in failure
    assert "event loop" not in failure


def test_a_failure_mentions_requests_with_another_key_or_path_but_not_those_of_earlier_tests(emulator, inbox, send):
    send("ann", key="another key")
    send("ann", path="/v2/push")
    assert text_of(inbox.assert_sent, "ann").endswith(
        "The service received no request with this test's key.\n"
        "2 requests had another key or another path: does the code use push.base_url and push.api_key, which push_env "
        "sets for code that reads the variables? To see another key's requests: push.emulator.inbox(key)"
    )
    later = PushInbox(emulator, api_key="later", label="later")
    assert "another key" not in later.summary()
    later.close()


# -- waiting --------------------------------------------------------------------------------------------------------


def soon(work):
    """Start the work in another thread."""
    thread = threading.Thread(target=work)
    thread.start()
    return thread


ODD = 'a "quoted\\" one: is:refused' + "x" * 2000


@pytest.mark.parametrize("wish", [{"user_id": ODD}, {"search": "status:204 title:hello", "count": 3}])
def test_wait_for_blocks_until_requests_match(inbox, send, wish):
    send("ann")
    sending = soon(lambda: [send(ODD) for _ in range(2)])
    assert inbox.wait_for(**wish, timeout=LONG)[-1].user_ids == (ODD,)
    inbox.wait_for(condition=lambda: inbox.accepted(ODD) == 2, timeout=LONG)
    sending.join()


@pytest.mark.parametrize("search", ["user: hello", "is:refusd", "Status:42", "a group:x", 'title:"a b', '"a\\"'])
def test_wait_for_refuses_a_search_that_finds_something_else(inbox, search):
    with pytest.raises(ValueError, match=r"search: (a term needs a value|there is no )"):
        inbox.wait_for(search=search)


def test_wait_for_counts_refused_requests_if_the_search_says_so(inbox, send):
    inbox.limits = ServiceLimits(max_users=1)  # of this inbox only
    assert send("ann", "bob") == 413
    assert send("ann", "bob", key="another key") == 204
    assert "got none" in text_of(inbox.wait_for, "bob", timeout=0)
    send("ann")
    assert inbox.wait_for(search="is:refused", count=1) == []
    assert "got 1." in text_of(inbox.wait_for, search="is:refused", count=2, timeout=0)


async def test_in_an_event_loop_until_waits_and_a_failed_wait_for_recommends_it(inbox, send):
    assert "use `await push.until(...)`" in text_of(inbox.wait_for, "ann", timeout=0)
    with pytest.raises(AssertionError, match=r"Waited 0\.01 s") as failed:
        await inbox.until("ann", timeout=0.01)
    assert not hasattr(failed.value, "__notes__")
    sending = asyncio.create_task(asyncio.to_thread(send, "ann"))
    assert [push.user_ids for push in await inbox.until("ann", timeout=LONG)] == [("ann",)]
    assert await sending == 204


# -- faults and limits ----------------------------------------------------------------------------------------------


def test_an_inner_fault_is_tried_first_and_the_outer_fault_keeps_counting(inbox, send):
    with inbox.fault(Fault.status(503, first=2)) as outer:
        assert send("ann") == 503
        with inbox.fault(Fault.status(429, first=1)) as inner:
            assert [send("ann") for _ in range(3)] == [429, 503, 204]
        assert send("ann") == 204
    assert outer.hits == 2
    assert inner.hits == 1


@pytest.mark.parametrize(("error", "has_note"), [(ZeroDivisionError, True), (KeyboardInterrupt, False)])
def test_another_error_is_raised_with_a_note_about_the_fault(inbox, error, has_note):
    with pytest.raises(error) as failed, inbox.fault(Fault.hang()):
        raise error
    assert getattr(failed.value, "__notes__", [""])[0].startswith("This fault never fired") is has_note


@pytest.mark.parametrize(
    ("faults", "users", "text"),
    [
        ([Fault.status(503, first=1), Fault.hang(user="eve")], ["ann"], "\n  Fault.hang(accepted=False, user='eve')\n"),
        ([Fault.status(422), Fault.reset_before()], ["ann"], "or an earlier fault took it: give that one first=1"),
        ([Fault.hang(user="eve"), Fault.hang(probability=0)], ["ann"], "never fired: no request met the conditions."),
        ("flaky", ["ann"], "never fired: none won its draw (seed=1)."),
        ("flaky", [], "These faults never fired: no request was received in its `with`."),
    ],
)
def test_every_fault_must_fire(inbox, send, faults, users, text):
    send("eve")
    context = inbox.faults(faults, seed=1) if isinstance(faults, str) else inbox.fault(*faults)
    with pytest.raises(AssertionError) as failed, context:
        for user in users:
            send(user)
    assert text in f"{failed.value}\n"
    assert "first=1)" not in str(failed.value), "it did fire"


def test_one_fault_of_a_preset_that_fires_is_enough(inbox, send):
    with inbox.faults("outage"):
        assert send("ann") is None


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda push: push.fault(), ".* a Fault, for example push.fault\\(Fault\\.status\\(429\\)\\).*"),
        (lambda push: push.fault(Fault.status(429), "flaky"), ".* a Fault, for example Fault\\.status\\(429\\).*"),
        (lambda push: push.faults(Fault.hang()), "preset must be 'flaky', .*; got Fault"),
        (lambda push: push.assert_sent(["ann"]), "user_id must be a str; got list"),
        (lambda push: push.assert_sent(language="de"), "language needs a title or a body: .*"),
        (lambda push: push.assert_sent(count="1"), "count must be a whole number, 0 or more; got '1'"),
        (lambda push: push.advance("x"), "seconds must be a number of seconds; got 'x'"),
        (
            lambda push: push.wait_for(condition=soon),
            "condition must be a function of 0 arguments, .* the function soon",
        ),
        (lambda push: setattr(push, "limits", {}), r"limits must be a ServiceLimits, for example .*\); got dict"),
    ],
)
def test_a_wrong_argument_is_an_error_with_the_rule(inbox, call, text):
    with pytest.raises(ValueError, match=f"^{text}$"):
        call(inbox)


# -- the thread -----------------------------------------------------------------------------------------------------


def test_entering_raises_the_error_of_opening_and_no_thread_is_left(emulator):
    def services():
        return sum(thread.name == "pushsdk-emulator" for thread in threading.enumerate())

    before = services()
    with (
        pytest.raises(OSError, match="in use"),
        in_thread(Emulator(port=int(emulator.url.rpartition(":")[2]))),
    ):
        raise AssertionError("it opened")
    with in_thread(Emulator()):
        assert services() == before + 1
    assert services() == before
