"""Texts of errors: the request, the reason of the operating system or of TLS, the setting, and what to do."""

import re
import socket
import ssl
import warnings

import pytest
from support import wire_tls
from support.wire_faults import always, fin, hold, read_head, rst, send, step, take, when
from support.wire_network import closed_port, lookups
from support.wire_server import WireServer

from pushsdk import (
    AsyncPushClient,
    ClaimStoreError,
    MessageWarning,
    MobilePush,
    Outcome,
    PushError,
    RetryPolicy,
    Timeout,
)
from pushsdk._core.outcome import Failure
from pushsdk._io.failures import words_of
from pushsdk.emulator import Fault
from pushsdk.testing import FakeService

MESSAGE = MobilePush(title={"en": "hi"}, ios_enabled=True)
PUSH_URL = "POST https://push.example/external/api/v1/push, 1 user"
LIMITS = "see: pushsdk docs timeouts-and-limits"


async def error_of(client, message=MESSAGE):
    async with client:
        with pytest.raises(PushError) as caught:
            await client.send("u", message)
    return caught.value


def client_of(base_url, **options):
    return AsyncPushClient(base_url, "secret-key", **{"retry": RetryPolicy.none(), **options})


def answering(status, **options):
    return FakeService(Fault.status(status, **options)).client(retry=RetryPolicy.none())


# -- the commonest mistakes, word by word ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message", "text"),
    [
        (lambda: AsyncPushClient(), MESSAGE, (
            "no base_url and no api_key: pass them, or set PUSHSDK_BASE_URL and PUSHSDK_API_KEY; for a local service, "
            "pushsdk emulator prints both"
        )),
        (lambda: AsyncPushClient("https://push.example"), MESSAGE, "no api_key: pass it, or set PUSHSDK_API_KEY"),
        (lambda: AsyncPushClient("https://push.example/v1/push", "key"), MESSAGE, (
            "base_url must end before /v1: the client adds /v1/push and /v1/campaigns"
        )),
        (lambda: client_of("http://127.0.0.1:9"), MESSAGE, (
            "not sent: the connection could not be opened: 127.0.0.1:9, Connection refused (POST http://127.0.0.1:9/v1/"
            "push, 1 user). Is the service up? For a local one: pushsdk emulator [not-sent-refused]"
        )),
        (lambda: answering(401), MESSAGE, (
            f"rejected: HTTP 401 Unauthorized ({PUSH_URL}). Check the api_key, and that it belongs to this base_url "
            "[rejected-401]"
        )),
        (lambda: answering(404), MESSAGE, (
            f"rejected: HTTP 404 Not Found ({PUSH_URL}). base_url is probably wrong: check its host and its path, "
            "which must end before /v1 [rejected-404]"
        )),
        (lambda: FakeService(Fault.status(429, headers={"Retry-After": "90"})).client(), MESSAGE, (
            f"rejected: HTTP 429 Too Many Requests ({PUSH_URL}); not retried: the service asked to wait longer than "
            "max_retry_after: 90 s, RetryPolicy(max_retry_after=60). Call again after 90 s. If this recurs, set the "
            f"rate below the service's limit; see: pushsdk docs throttling [rejected-429]"
        )),
        (lambda: FakeService(Fault.hang()).client(timeout=0.05), MESSAGE, (
            f"outcome unknown: the deadline passed: total timeout 0.05 s ({PUSH_URL}); it may have been enqueued, so "
            f"sending it again may push twice. Raise the timeout if the service needs longer; {LIMITS} "
            "[outcome-unknown-deadline]"
        )),
        (lambda: FakeService().client(), MobilePush(title={"en": "no platform"}), (
            "$.message: neither ios_enabled nor android_enabled is true, so it may reach no phone: set one. It is sent "
            "as it is"
        )),
        (lambda: FakeService().client(), {"titel": {"en": "Hi"}, "iosEnabled": True}, (
            "$.message.titel: unknown field, did you mean title? It is sent as it is"
        )),
        (lambda: FakeService().client(), {"title": "Hello"}, (
            '$.message.title: expected a mapping, got str, for example {"en": "Hello"}'
        )),
    ],
)  # fmt: skip
async def test_the_commonest_mistakes_have_these_texts(monkeypatch, make, message, text):
    monkeypatch.delenv("PUSHSDK_BASE_URL", raising=False)
    monkeypatch.delenv("PUSHSDK_API_KEY", raising=False)
    with warnings.catch_warnings(), pytest.raises((PushError, MessageWarning)) as caught:
        warnings.simplefilter("error", MessageWarning)
        async with make() as client:
            await client.send("u", message)
    assert str(caught.value) == text


# -- no connection ------------------------------------------------------------------------------------------------


async def test_an_unknown_host_is_named():
    with lookups("fail"):
        error = await error_of(client_of("https://push.example/api"))
    assert "the host name could not be resolved: push.example:443, Name or service not known (" in str(error)
    assert "Check the host in base_url, and the DNS of this machine" in str(error)
    assert isinstance(error.__cause__, OSError)
    assert error.__cause__.__traceback__ is None


@pytest.mark.parametrize(
    ("context", "reason", "fix"),
    [
        (wire_tls.untrusted, "unable to get local issuer certificate", "For a private CA pass ssl=ssl.create_default_"),
        (wire_tls.expired, "certificate has expired", "Renew the service's certificate"),
        (wire_tls.other_host, "Hostname mismatch", "base_url must have a name that the certificate is for"),
    ],
)
async def test_a_wrong_certificate_names_the_reason_of_tls_and_a_fix(context, reason, fix):
    async with WireServer(tls=context()) as server:
        url = server.base_url.replace("127.0.0.1", "localhost")
        error = await error_of(client_of(url, ssl=wire_tls.client_context()))
    assert "the server's certificate was not accepted: " in str(error)
    assert reason in str(error)
    assert f"). {fix}" in str(error)
    assert isinstance(error.__cause__, ssl.SSLCertVerificationError)
    assert server.begun == 0
    assert error.outcome == Outcome.NOT_SENT
    assert not error.attempts[-1].retryable


async def test_a_proxy_is_named_without_its_password():
    async with closed_port() as (_, port):
        error = await error_of(client_of("https://push.example/api", proxy=f"http://ann:secret@127.0.0.1:{port}"))
    assert f"the proxy could not be used: http://127.0.0.1:{port}, Connection refused (POST https" in str(error)


@pytest.mark.parametrize(
    ("act", "text"),
    [
        (send(b"HTTP/1.1 407 x\r\n\r\n"), "the proxy could not be used: {}, HTTP 407 ("),
        (send(b"HTTP/1.1 503 x\r\n\r\n"), "could not be opened: push.example:443 through {}, HTTP 503 ("),
        (fin, "the connection was closed without an answer: push.example:443 through {} ("),
        (rst, "the connection broke: push.example:443 through {}, Connection reset by peer ("),
    ],
)
async def test_a_proxy_that_does_not_open_a_tunnel_is_named_and_nothing_is_sent(act, text):
    async with WireServer(when(always, step(read_head, act))) as proxy:
        address = f"127.0.0.1:{proxy.port}"
        error = await error_of(client_of("https://push.example/api", proxy=f"http://ann:secret@{address}"))
    assert text.format(f"http://{address}") in str(error)
    assert {attempt.outcome for attempt in error.attempts} == {Outcome.NOT_SENT}


@pytest.mark.parametrize("location", ["redis://127.0.0.1:{}", "postgresql://127.0.0.1:{}/db"])
async def test_a_claim_store_that_is_down_asks_whether_it_is_up(location):
    async with closed_port() as (_, port), client_of("http://127.0.0.1:9", claims=location.format(port)) as client:
        with pytest.raises(ClaimStoreError, match=r"refused; is the store up, and its address right\?"):
            await client.send("u", MESSAGE, idempotency_key="job-1")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (socket.gaierror(), "gaierror"),
        (OSError("text of the server"), "OSError"),
        (OSError(113, "x"), "No route to host"),
    ],
)
def test_a_reason_is_in_fixed_words(error, words):
    assert words_of(error, Failure.REFUSED, error) == words


# -- timeouts and limits ------------------------------------------------------------------------------------------


async def test_a_timeout_names_the_setting_and_has_a_timeout_error_as_its_cause():
    async with WireServer(when(always, step(take, hold))) as server:
        error = await error_of(client_of(server.base_url, timeout=Timeout(attempt=0.05)))
    assert str(error).startswith("outcome unknown: no answer within the attempt timeout: 0.05 s (POST")
    assert isinstance(error.__cause__, TimeoutError)
    assert error.__cause__.__traceback__ is None


async def test_a_call_whose_attempts_are_used_up_says_so():
    retry = RetryPolicy.safe(max_attempts=2, throttle_delay=0.001)
    text = str(await error_of(FakeService(Fault.status(429)).client(retry=retry)))
    assert ", 2 attempts); not retried again: the retry policy allows no more attempts. Call again later" in text


# -- answers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "headers", "text"),
    [
        (409, {}, r"^rejected: HTTP 409 Conflict \([^)]*\) \[rejected-409\]$"),
        (
            503,
            {"Retry-After": "90"},
            r"^rejected: HTTP 503 Service Unavailable \([^)]*\).* Call again after 90 s \[rejected-503\]$",
        ),
        (500, {}, r"^outcome unknown: HTTP 500 Internal Server Error \(.* Don't retry unless a second push is accept"),
        (500, {"X-Request-Id": "req-79"}, "push twice. Don't retry: ask the service about request id req-79; see: "),
    ],
)
async def test_a_status_is_named_with_its_phrase_and_what_to_do(status, headers, text):
    error = await error_of(answering(status, headers=headers))
    assert re.search(text, str(error))
    assert error.__cause__ is None
