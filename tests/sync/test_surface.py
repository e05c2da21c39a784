"""PushClient has the methods and the checks of AsyncPushClient."""

import inspect
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from support.programs import run_program
from support.service_thread import ThreadService

from pushsdk import (
    AsyncPushClient,
    CampaignRequest,
    ClientClosedError,
    ConfigurationError,
    MobilePush,
    Outcome,
    PushClient,
    RetryPolicy,
    ValidationError,
)
from pushsdk.claims import MemoryClaims

HELLO = MobilePush(body={"en": "hi"})
NOWHERE = "https://push.example"
RENAMED = {"aclose": "close", "__aenter__": "__enter__", "__aexit__": "__exit__"}


def parameters(function: Any) -> list[tuple[str, Any, Any]]:
    return [
        (parameter.name, parameter.kind, parameter.default)
        for parameter in inspect.signature(function).parameters.values()
    ]


def test_the_methods_and_their_parameters_are_those_of_the_async_client() -> None:
    ours, theirs = PushClient, AsyncPushClient
    # A thread waits for one call at a time: ``submit`` and ``batch`` would bring it nothing.
    names = [name for name in dir(theirs) if not name.startswith("_") or name in RENAMED]
    names = [name for name in names if name not in ("submit", "batch", "closed")]
    assert sorted(RENAMED.get(name, name) for name in names) == sorted(
        name for name in dir(ours) if name != "closed" and (name[0] != "_" or name in RENAMED.values())
    )
    for name in names:
        assert parameters(getattr(ours, RENAMED.get(name, name))) == parameters(getattr(theirs, name)), name


def test_the_constructor_is_that_of_the_async_client_but_for_the_session() -> None:
    ours, theirs = inspect.signature(PushClient).parameters, inspect.signature(AsyncPushClient).parameters
    assert [*ours] == [name for name in theirs if name != "session"]
    assert ours["options"] == theirs["options"]
    with pytest.raises(TypeError, match="session"):
        PushClient(NOWHERE, "key", session=None)  # type: ignore[call-arg]


@pytest.mark.parametrize("client", [AsyncPushClient, PushClient])
def test_an_unknown_option_is_a_type_error(client: Any) -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'keepaliv'"):
        client(NOWHERE, "key", keepaliv=4.0)


def test_the_annotations_differ_only_in_what_belongs_to_a_loop() -> None:
    ours, theirs = PushClient, AsyncPushClient

    def worded(name: str, annotation: Any) -> str:
        text = str(annotation)
        return (
            text.replace(" | AsyncIterable[str]", "")
            .replace(" | AsyncIterable[PushRequest | PushRequestDict | UntypedMapping[PushRequestDict]]", "")
            .replace("asyncio.Event", "threading.Event")
        )

    for name in ("send", "create_campaign", "broadcast", "send_each", "resume", "with_options", "flush", "stats"):
        wanted = {
            key: worded(name, annotation) for key, annotation in inspect.get_annotations(getattr(theirs, name)).items()
        }
        assert inspect.get_annotations(getattr(ours, name)) == wanted, name


USES: dict[str, Callable[[PushClient], object]] = {
    "send": lambda client: client.send("u", HELLO),
    "create_campaign": lambda client: client.create_campaign(CampaignRequest(name="c")),
    "broadcast": lambda client: client.broadcast(["u"], HELLO),
    "send_each": lambda client: client.send_each([]),
    "resume": lambda client: client.resume("spring.run"),
    "a view's send": lambda client: client.with_options(timeout=1.0).send("u", HELLO),
    "with": lambda client: client.__enter__(),
    "flush": lambda client: client.flush(),
}
EVERY_USE = pytest.mark.parametrize("use", USES.values(), ids=USES.keys())


@EVERY_USE
@pytest.mark.parametrize("used", [True, False], ids=["used before", "never used"])
def test_a_closed_client_is_not_used_again(
    service: ThreadService, use: Callable[[PushClient], object], used: bool
) -> None:
    client = PushClient()
    if used:
        client.send("first", HELLO)
    client.close()
    with pytest.raises(ClientClosedError, match="make a new client") as excinfo:
        use(client)
    assert (excinfo.value.outcome, excinfo.value.retryable) == (Outcome.NOT_SENT, False)
    assert "closed=True" in repr(client)
    assert client.close().accepted == ()


def test_everything_is_sent_by_the_same_core(client: PushClient, service: ThreadService, tmp_path: Path) -> None:
    assert client.send(iter(["a", "b", "a"]), HELLO).duplicates == 1
    assert client.with_options(timeout=5.0, retry=RetryPolicy.none()).send("c", {"title": {"en": "t"}}).users == 1
    assert client.create_campaign(CampaignRequest(name="c", external_id="e")).uuid
    run = tmp_path / "spring.run"
    assert client.broadcast(["d", "e"], HELLO, run=run, limit=1).stopped_by == "limit"
    assert client.resume(run).accepted == 2
    assert client.send_each([{"userIds": ["f"], "message": {}}]).accepted == 1
    client.flush()
    stats = client.stats()
    assert (stats.accepted, stats.campaigns, stats.in_flight) == (6, 1, 0)
    assert service.users() == dict.fromkeys("abcdef", 1)


def test_a_dedupe_key_sends_once_and_the_store_is_closed_with_the_client(service: ThreadService) -> None:
    class ClosedClaims(MemoryClaims):
        closed = 0

        async def aclose(self) -> None:
            self.closed += 1

    claims = ClosedClaims()
    with PushClient(claims=claims) as client:
        receipts = [client.send("u", HELLO, idempotency_key="job-1") for _ in range(2)]
    assert [receipt.already_accepted for receipt in receipts] == [0, 1]
    assert (service.users(), claims.closed) == ({"u": 1}, 1)


async def ids() -> AsyncIterator[Any]:
    yield "u"


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda client: client.send(ids(), HELLO), ValidationError, "got async_generator"),
        (lambda client: client.send(7, HELLO), ValidationError, "int"),
        (lambda client: client.send([], HELLO), ValidationError, "empty"),
        (lambda client: client.send((f"u{n}" for n in range(1001)), HELLO), ValidationError, "at most 1,000"),
        (
            lambda client: client.broadcast(ids(), HELLO),
            ValidationError,
            "must be a plain iterable, not an async",
        ),
        (lambda client: client.send_each(ids()), ValidationError, "requests must be a plain iterable"),
        (lambda client: client.broadcast(7, HELLO), ValidationError, "got int"),
        (lambda client: client.broadcast("u", HELLO), ValidationError, "got str"),
        (lambda client: client.broadcast(["u"], HELLO, stop=7), ConfigurationError, "threading.Event"),
        (lambda client: client.broadcast(["u"], HELLO, on_progress=7), ConfigurationError, "on_progress"),
        (lambda client: client.broadcast(["u"], HELLO, on_unknwon="resend"), TypeError, "on_unknwon"),
        (lambda client: client.close(drain=-1), ConfigurationError, "drain"),
        (lambda client: client.send("u", HELLO, idempotency_key="k"), ConfigurationError, "claims="),
    ],
)
def test_a_wrong_argument_is_an_error_before_anything_is_sent(
    client: PushClient, service: ThreadService, call: Callable[[Any], object], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        call(client)
    assert service.requests == 0


def test_a_repr_shows_the_address_and_no_key() -> None:
    assert repr(PushClient(NOWHERE, "secret-key")) == f"PushClient({NOWHERE!r}, closed=False)"


def test_the_async_client_is_imported_without_the_sync_one() -> None:
    loaded = run_program("import sys; from pushsdk import AsyncPushClient; print(*sys.modules)")
    assert loaded.code == 0
    assert [name for name in loaded.out.split() if name.startswith("pushsdk.sync")] == []
