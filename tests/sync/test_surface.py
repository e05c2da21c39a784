"""PushClient has the methods and the checks of AsyncPushClient."""

import inspect
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.programs import run_program
from support.wire_judge import HELLO

from pushsdk import (
    AsyncPushClient,
    CampaignRequest,
    ClientClosedError,
    ConfigurationError,
    MessageWarning,
    Outcome,
    PushClient,
    RetryPolicy,
    ValidationError,
)
from pushsdk.claims import MemoryClaims

NOWHERE = "https://push.example"
RENAMED = {"aclose": "close", "__aenter__": "__enter__", "__aexit__": "__exit__"}
# A thread waits for one call at a time: ``submit`` would bring it nothing.
LEFT_OUT = ("submit", "closed")
# What belongs to a loop.
OTHER_TYPES = {
    " | AsyncIterable[str]": "",
    " | AsyncIterable[AnyRequest]": "",
    "asyncio.Event | ": "",
}


def parameters(function):
    return [(each.name, each.kind, each.default) for each in inspect.signature(function).parameters.values()]


def annotations(function):
    texts = {name: str(text) for name, text in inspect.get_annotations(function).items() if name != "return"}
    for theirs, ours in OTHER_TYPES.items():
        texts = {name: text.replace(theirs, ours) for name, text in texts.items()}
    return texts


def test_the_methods_and_their_parameters_are_those_of_the_async_client():
    ours = PushClient
    theirs = AsyncPushClient
    names = [name for name in dir(theirs) if name in RENAMED or not name.startswith("_")]
    names = [name for name in names if name not in LEFT_OUT]
    assert sorted(RENAMED.get(name, name) for name in names) == sorted(
        name for name in dir(ours) if name != "closed" and (name[0] != "_" or name in RENAMED.values())
    )
    for name in names:
        method = getattr(ours, RENAMED.get(name, name))
        assert parameters(method) == parameters(getattr(theirs, name)), name
        assert annotations(method) == annotations(getattr(theirs, name)), name


def test_the_constructor_is_that_of_the_async_client_but_for_the_session():
    ours = inspect.signature(PushClient).parameters
    theirs = inspect.signature(AsyncPushClient).parameters
    assert [*ours] == [name for name in theirs if name != "session"]
    assert ours["options"] == theirs["options"]
    with pytest.raises(TypeError, match="unexpected keyword argument 'session'"):
        PushClient(NOWHERE, "key", session=None)


USES = [
    lambda client: client.broadcast(["u"], HELLO),
    lambda client: client.with_options(timeout=1.0).send("u", HELLO),
    lambda client: client.__enter__(),
]


@pytest.mark.parametrize("used", [True, False])
def test_a_closed_client_is_not_used_again(service, used):
    client = PushClient()
    if used:
        client.send("first", HELLO)
    client.close()
    for use in USES:
        with pytest.raises(ClientClosedError, match="make a new client") as excinfo:
            use(client)
        assert excinfo.value.outcome == Outcome.NOT_SENT
        assert not excinfo.value.retryable
    assert "closed=True" in repr(client)
    with ThreadPoolExecutor() as threads:  # the thread may get the number of the client's
        assert threads.submit(client.close).result().accepted == ()


def test_everything_is_sent_by_the_same_core(service, tmp_path):
    class ClosedClaims(MemoryClaims):
        closed = 0

        async def aclose(self):
            self.closed += 1

    with PushClient(claims=(claims := ClosedClaims())) as client:
        assert client.send(iter(["a", "b", "a"]), HELLO).duplicates == 1
        client.with_options(timeout=5.0, retry=RetryPolicy.none()).send("c", {"title": {"en": "t"}})
        assert client.create_campaign(CampaignRequest(name="c", external_id="e")).uuid
        run = tmp_path / "spring.run"
        assert client.broadcast(["d", "e"], HELLO, run=run, limit=1).stopped_by == "limit"
        assert client.resume(run).accepted == 2
        # A generator may change a request and yield it again.
        request = {"message": {}}
        assert client.send_each(request for request["userIds"] in "fgh").accepted == 3
        client.flush()
        stats = client.stats()
        assert [client.send("i", HELLO, idempotency_key="job").already_accepted for _ in range(2)] == [0, 1]
    assert stats.accepted == 8
    assert stats.campaigns == 1
    assert stats.in_flight == 0
    assert service.users() == dict.fromkeys("abcdefghi", 1)
    assert claims.closed == 1


def test_a_close_warns_once_of_milliseconds(client):
    client.flush()
    with pytest.warns(MessageWarning) as caught:
        client.close(drain=30_000)
    assert len(caught) == 1


async def ids():
    yield "u"


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda client: client.send(ids(), HELLO), ValidationError, "got async_generator"),
        (lambda client: client.send((f"u{n}" for n in range(1001)), HELLO), ValidationError, "at most 1,000"),
        (lambda client: client.broadcast(ids(), HELLO), ValidationError, "must be a plain iterable, not an async"),
        (lambda client: client.send_each(ids()), ValidationError, "requests must be a plain iterable"),
        (lambda client: client.close(drain=-1), ConfigurationError, "drain"),
        (lambda client: client.broadcast(["u"], HELLO, on_progress=7), ConfigurationError, "on_progress"),
        (lambda client: client.broadcast(["u"], HELLO, stop=7), ConfigurationError, "threading.Event"),
    ],
)
def test_a_wrong_argument_is_an_error_before_anything_is_sent(client, service, call, error, words):
    with pytest.raises(error, match=words):
        call(client)
    assert service.requests == 0


def test_the_async_client_is_imported_without_the_sync_one():
    loaded = run_program("import sys; from pushsdk import AsyncPushClient; print(*sys.modules)")
    assert loaded.code == 0
    assert [name for name in loaded.out.split() if name.startswith("pushsdk.sync")] == []
