"""Texts of errors: the request, the reason of the operating system or of TLS, the setting, and what to do."""

import asyncio
import re
import socket
import ssl
import time
from collections.abc import Callable
from email.utils import formatdate
from http import HTTPStatus

import pytest
import tenacity
from support import wire_tls
from support.wire_faults import always, fin, hold, read_head, send, step, take, when
from support.wire_network import black_hole, closed_port, lookups
from support.wire_server import WireServer

from pushsdk import (
    AsyncPushClient,
    Batching,
    ClaimStoreError,
    Limits,
    MobilePush,
    NotSentError,
    PushError,
    RetryPolicy,
    Timeout,
    UnexpectedResponseError,
    ValidationError,
)
from pushsdk.claims import MemoryClaims
from pushsdk.emulator import Fault
from pushsdk.testing import FakeService

MESSAGE = MobilePush(title={"en": "hi"}, ios_enabled=True)
PUSH_URL = "POST https://push.example/external/api/v1/push, 1 user"


async def error_of(client: AsyncPushClient) -> PushError:
    async with client:
        with pytest.raises(PushError) as caught:
            await client.send("u", MESSAGE)
    return caught.value


def client_of(base_url: str, **options) -> AsyncPushClient:
    return AsyncPushClient(base_url, "secret-key", **{"retry": RetryPolicy.none(), **options})


# -- no connection ------------------------------------------------------------------------------------------------


async def test_a_refused_connection_names_the_port_the_reason_and_the_emulator() -> None:
    async with closed_port() as (_, port):
        error = await error_of(client_of(f"http://127.0.0.1:{port}"))
    assert str(error) == (
        f"not sent: the connection could not be opened: 127.0.0.1:{port}, Connection refused "
        f"(POST http://127.0.0.1:{port}/v1/push, 1 user). Is the service up? For a local one: pushsdk emulator"
    )
    assert isinstance(error.__cause__, ConnectionRefusedError)
    assert error.__cause__.__traceback__ is None


async def test_an_unknown_host_is_named() -> None:
    with lookups("fail"):
        error = await error_of(client_of("https://push.example/api"))
    assert "the host name could not be resolved: push.example:443, " in str(error)
    assert str(error).endswith("Check the host in base_url, and the DNS of this machine")
    assert isinstance(error.__cause__, OSError)


async def test_a_connect_timeout_names_the_setting_and_its_seconds() -> None:
    async with black_hole() as (_, port):
        error = await error_of(client_of(f"http://127.0.0.1:{port}", timeout=Timeout(connect=0.05)))
    assert f"no connection in time: 127.0.0.1:{port}, connect timeout 0.05 s" in str(error)
    assert "Is the host reachable from here" in str(error)


@pytest.mark.parametrize(
    ("timeout", "named"),
    [(Timeout(total=0.1), "total timeout 0.1 s"), (Timeout(attempt=0.05, total=1), "attempt timeout 0.05 s")],
)
@pytest.mark.parametrize("options", [{}, {"claims": "memory:"}])
async def test_a_deadline_before_there_is_a_connection_says_so(timeout: Timeout, named: str, options: dict) -> None:
    async with black_hole() as (_, port), client_of(f"https://127.0.0.1:{port}", timeout=timeout, **options) as client:
        with pytest.raises(NotSentError) as caught:
            await client.send("u", MESSAGE, idempotency_key="job-1" if options else None)
    assert str(caught.value) == (
        f"not sent: no connection in time: 127.0.0.1:{port}, {named} (POST https://127.0.0.1:{port}/v1/push, 1 user). "
        "Is the host reachable from here, past firewalls and proxies?"
    )
    assert caught.value.retryable


@pytest.mark.parametrize(
    ("timeout", "start"),
    [
        (Timeout(total=0.2), "no connection in time: {}, TCP connected, the TLS handshake did not end, total timeout"),
        (
            Timeout(connect=0.2),
            "no connection in time: {}, TCP connected, the TLS handshake did not end, connect timeout",
        ),
    ],
)
async def test_a_tls_handshake_that_hangs_is_named(timeout: Timeout, start: str) -> None:
    async with WireServer(when(always, step(hold))) as server:
        error = await error_of(client_of(f"https://127.0.0.1:{server.port}", timeout=timeout))
    assert str(error).startswith(f"not sent: {start.format(f'127.0.0.1:{server.port}')}")
    assert str(error).endswith("Does the service speak TLS on this port?")


async def test_a_claim_store_that_hangs_is_no_missing_connection() -> None:
    class HangingStore(MemoryClaims):
        async def put(self, *args: object) -> None:
            await asyncio.sleep(60)

    store = HangingStore()
    store.timeout = 0.1
    async with WireServer() as server, client_of(server.base_url, claims=store, timeout=0.1) as client:
        with pytest.raises(NotSentError) as caught:
            await client.send("u", MESSAGE, idempotency_key="job-1")
        await client.aclose(drain=0)
    assert "no connection" not in str(caught.value)


async def test_an_untrusted_certificate_names_the_reason_of_tls_and_the_option() -> None:
    async with WireServer(tls=wire_tls.untrusted()) as server:
        error = await error_of(client_of(server.base_url, ssl=wire_tls.client_context()))
    assert "the server's certificate was not accepted: " in str(error)
    assert ", unable to get local issuer certificate (" in str(error)
    assert str(error).endswith("For a private CA pass ssl=ssl.create_default_context(cafile=...)")
    assert isinstance(error.__cause__, ssl.SSLCertVerificationError)


@pytest.mark.parametrize(
    ("context", "reason", "fix"),
    [
        (wire_tls.expired, "certificate has expired", "Renew the service's certificate"),
        (wire_tls.other_host, "Hostname mismatch", "base_url must have a name that the certificate is for"),
    ],
)
async def test_a_wrong_certificate_has_a_fix_of_its_own(context: Callable, reason: str, fix: str) -> None:
    async with WireServer(tls=context()) as server:
        url = server.base_url.replace("127.0.0.1", "localhost")
        error = await error_of(client_of(url, ssl=wire_tls.client_context()))
    assert reason in str(error)
    assert f"). {fix}" in str(error)


async def test_a_proxy_is_named_without_its_password() -> None:
    async with closed_port() as (_, port):
        error = await error_of(client_of("https://push.example/api", proxy=f"http://ann:secret@127.0.0.1:{port}"))
    assert str(error).startswith(
        f"not sent: the proxy could not be used: http://127.0.0.1:{port}, Connection refused (POST https://push.example"
    )


async def test_a_status_of_a_proxy_is_named() -> None:
    async with WireServer(when(always, step(read_head, send(b"HTTP/1.1 407 x\r\n\r\n")))) as proxy:
        error = await error_of(client_of("https://push.example/api", proxy=f"http://127.0.0.1:{proxy.port}"))
    assert f"the proxy could not be used: http://127.0.0.1:{proxy.port}, HTTP 407 (" in str(error)


async def test_another_protocol_asks_for_the_base_url() -> None:
    async with WireServer(when(always, step(take, send(b"220 mail\r\n\r\n")))) as server:
        error = await error_of(client_of(server.base_url))
    assert "could not be parsed as HTTP (POST" in str(error)
    assert "Is base_url right?" in str(error)


async def test_a_campaign_without_a_uuid_names_the_request_and_what_not_to_do() -> None:
    async with FakeService(Fault.status(200, body="{}", first=1)).client() as client:
        with pytest.raises(UnexpectedResponseError) as caught:
            await client.create_campaign({"name": "Spring"})
    assert str(caught.value) == (
        "the campaign was created (HTTP 200, POST https://push.example/external/api/v1/campaigns), but the answer has "
        "no uuid that can be read. Don't create it again: look it up by its externalId"
    )


@pytest.mark.parametrize("location", ["redis://127.0.0.1:{}", "postgresql://127.0.0.1:{}/db"])
async def test_a_claim_store_that_is_down_asks_whether_it_is_up(location: str) -> None:
    async with (
        closed_port() as (_, port),
        AsyncPushClient("http://127.0.0.1:9", "k", claims=location.format(port)) as c,
    ):
        with pytest.raises(ClaimStoreError, match=r"refused; is the store up, at the address in claims=\?"):
            await c.send("u", MESSAGE, idempotency_key="job-1")


@pytest.mark.parametrize(("key", "kind"), [(42, "int"), ("", "''")])
async def test_a_wrong_idempotency_key_shows_its_kind(key: object, kind: str) -> None:
    async with AsyncPushClient("http://127.0.0.1:9", "k", claims="memory:") as client:
        with pytest.raises(ValidationError, match=f"'shipped:42'; got {kind}$"):
            await client.send("u", MESSAGE, idempotency_key=key)


async def test_a_text_for_all_languages_shows_an_example() -> None:
    async with AsyncPushClient("http://127.0.0.1:9", "k") as client:
        with pytest.raises(PushError) as caught:
            await client.send("u", {"title": "Hello"})
    assert str(caught.value) == '$.message.title: expected a mapping, got str, for example {"en": "Hello"}'


async def test_a_connection_that_breaks_on_loopback_does_not_ask_for_https() -> None:
    async with WireServer(tls=wire_tls.untrusted()) as server:
        error = await error_of(client_of(server.base_url.replace("https:", "http:")))
    assert str(error).startswith("outcome unknown: the connection ")
    assert "https?" not in str(error)


async def test_tls_to_a_plain_port_asks_for_the_port() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1") as plain:
        port = plain.sockets[0].getsockname()[1]
        error = await error_of(client_of(f"https://127.0.0.1:{port}"))
    assert f"the TLS handshake failed: 127.0.0.1:{port}, " in str(error)
    assert str(error).endswith("Does the service speak TLS on this port?")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "Name or service not known"),
        (socket.gaierror(), "gaierror"),
        (ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number"), "tls error"),
        (OSError("text of the server"), "OSError"),
        (OSError(113, "text of the server"), "No route to host"),
    ],
)
def test_a_reason_is_in_fixed_words(error: OSError, words: str) -> None:
    from pushsdk._core.outcome import Failure
    from pushsdk._io.failures import words_of

    assert words_of(error, Failure.REFUSED, error) == words


# -- timeouts and limits ------------------------------------------------------------------------------------------


async def test_an_attempt_timeout_names_the_setting_and_its_seconds() -> None:
    async with WireServer(when(always, step(take, hold))) as server:
        error = await error_of(client_of(server.base_url, timeout=Timeout(attempt=0.05)))
    assert str(error) == (
        "outcome unknown: no answer within the attempt timeout: 0.05 s "
        f"(POST {server.base_url}/v1/push, 1 user); it may have been enqueued, so sending it again may push twice. "
        "Raise the attempt timeout if the service needs longer; see: pushsdk docs timeouts-and-limits"
    )


@pytest.mark.parametrize("timeout", [Timeout(attempt=0.05), Timeout(total=0.05)])
async def test_a_timeout_has_a_timeout_error_as_its_cause(timeout: Timeout) -> None:
    async with WireServer(when(always, step(take, hold))) as server:
        error = await error_of(client_of(server.base_url, timeout=timeout))
    assert isinstance(error.__cause__, TimeoutError)
    assert error.__cause__.__traceback__ is None


async def test_a_closed_connection_has_a_connection_error_without_frames_as_its_cause() -> None:
    async with WireServer(when(always, step(take, fin))) as server:
        error = await error_of(client_of(server.base_url))
    assert "the connection was closed without an answer (POST" in str(error)
    assert isinstance(error.__cause__, ConnectionResetError)
    assert (error.__cause__.__traceback__, error.__cause__.__context__) == (None, None)


async def test_a_pause_in_fractions_of_a_second_is_rounded_up_in_each_place() -> None:
    date = formatdate(time.time() + 90.5, usegmt=True)
    service = FakeService(Fault.status(429, headers={"Retry-After": date}))
    text = str(await error_of(service.client(timeout=7.0)))
    assert not re.search(r"\d\.\d+ s|e\+", text)


async def test_a_deadline_names_the_setting_and_its_seconds() -> None:
    async with WireServer(when(always, step(take, hold))) as server:
        error = await error_of(client_of(server.base_url, timeout=0.05))
    assert "the deadline passed: total timeout 0.05 s (POST" in str(error)


async def test_a_call_whose_next_wait_would_be_too_long_says_that_it_gave_up() -> None:
    service = FakeService(Fault.status(429, headers={"Retry-After": "0"}))
    retry = RetryPolicy(initial_delay=5.0, max_delay=5.0, throttle_delay=5.0, wait=tenacity.wait_fixed(1.0))
    error = await error_of(service.client(timeout=1.5, retry=retry))
    assert str(error).startswith(
        f"rejected: HTTP 429 Too Many Requests ({PUSH_URL}, 2 attempts); given up: the next wait would pass the "
        "deadline: total timeout 1.5 s. "
    )


async def test_a_deadline_in_the_queue_names_the_setting_and_its_seconds() -> None:
    service = FakeService(Fault.hang())
    async with service.client(limits=Limits(in_flight=1)) as client:
        first = asyncio.create_task(client.send("a", MESSAGE, timeout=Timeout(total=0.2)))
        await asyncio.sleep(0)
        with pytest.raises(PushError) as caught:
            await client.send("u", MESSAGE, timeout=Timeout(total=0.05))
        first.cancel()
    assert str(caught.value).startswith(
        "not sent: the deadline passed: total timeout 0.05 s (1 user). It waited for its turn: raise the timeout, "
        "the rate or in_flight; see: "
    )


async def test_a_call_that_is_not_retried_names_why_and_the_setting() -> None:
    service = FakeService(Fault.status(429, headers={"Retry-After": "50"}))
    error = await error_of(service.client(timeout=7.0))
    assert f"HTTP 429 Too Many Requests ({PUSH_URL}); not retried: the service asked to wait longer" in str(error)
    assert " than the call can: 50 s, total timeout 7 s. " in str(error)
    assert str(error).endswith(
        "Call again after 50 s, or set a rate, for example rate=Rate(users_per_second=100); see: pushsdk docs "
        "timeouts-and-limits"
    )


@pytest.mark.parametrize(
    ("status", "phrase", "rate"),
    [(429, "Too Many Requests", ", or set a rate, for example"), (503, "Service Unavailable", "")],
)
async def test_a_wait_longer_than_the_policy_allows_names_its_setting(status: int, phrase: str, rate: str) -> None:
    service = FakeService(Fault.status(status, headers={"Retry-After": "90"}))
    error = await error_of(service.client(timeout=900.0))
    start = (
        f"rejected: HTTP {status} {phrase} ({PUSH_URL}); not retried: the service asked to wait longer than "
        f"max_retry_after: 90 s, RetryPolicy(max_retry_after=60). Call again after 90 s{rate}"
    )
    assert str(error).startswith(start)
    assert rate or str(error) == start


async def test_a_call_that_waits_for_a_pause_names_the_pause_and_the_setting() -> None:
    service = FakeService(Fault.status(429, headers={"Retry-After": "50"}, first=1))
    async with service.client(timeout=7.0) as client:
        for _ in range(2):
            with pytest.raises(PushError) as caught:
                await client.send("u", MESSAGE)
    assert str(caught.value) == (
        "not sent: the service asked to wait longer than the call can: 50 s, total timeout 7 s (1 user). Call again "
        "after this pause; see: pushsdk docs retries"
    )
    assert caught.value.retry_after == pytest.approx(50, abs=1)


# -- answers ------------------------------------------------------------------------------------------------------


WRONG_URL = "base_url is probably wrong: check its host and its path, which must end before /v1"
TOO_LARGE = "Shorten the message, or send to fewer users per call if the service limits their number"
LINT = "Check the message: pushsdk message lint, or lint(message)"
DOUBT = (
    "it may have been enqueued, so sending it again may push twice. Don't retry unless a second push is acceptable; "
    "see: pushsdk docs outcomes"
)


@pytest.mark.parametrize("status", [200, 302, 401, 404, 413, 429, 500])
async def test_a_text_without_the_answer_says_where_it_is(status: int) -> None:
    service = FakeService(Fault.status(status, headers={"Content-Type": "text/html"}, body="<html>"))
    error = await error_of(service.client(retry=RetryPolicy.none()))
    assert str(error).endswith(". The answer is in .body; with PUSHSDK_SHOW_ANSWERS=1 it is shown here")


async def test_an_unknown_outcome_names_the_request_to_ask_for() -> None:
    service = FakeService(Fault.status(500, headers={"X-Request-Id": "req-79"}))
    assert str(await error_of(service.client())).endswith(
        "push twice. Don't retry: ask the service about request id req-79; see: pushsdk docs outcomes"
    )


async def test_an_unknown_outcome_counts_the_pushes_that_a_user_may_have_got() -> None:
    service = FakeService(Fault.status(500))
    async with service.client(retry=RetryPolicy.at_least_once()) as client:
        with pytest.raises(PushError) as caught:
            await client.send("u", MESSAGE)
    assert "; it may have been enqueued up to 4 times, so sending it again may push once more. " in str(caught.value)


async def test_a_call_in_several_requests_counts_the_pushes_to_one_user() -> None:
    service = FakeService(Fault.status(500))
    async with service.client(retry=RetryPolicy.none(), batching=Batching(max_users=1000)) as client:
        await asyncio.sleep(0)
        with pytest.raises(PushError) as caught:
            await client.send([f"u{number}" for number in range(1000)], MESSAGE)
    assert f"({PUSH_URL.replace('1 user', '1,000 users')})" in str(caught.value)
    assert "it may have been enqueued, so" in str(caught.value)


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (400, f"rejected: HTTP 400 Bad Request ({{}}). {LINT}"),
        (409, "rejected: HTTP 409 Conflict ({})"),
        (422, f"rejected: HTTP 422 {HTTPStatus(422).phrase} ({{}}). {LINT}"),
        (401, "rejected: HTTP 401 Unauthorized ({}). Check the api_key, and that it belongs to this base_url"),
        (404, f"rejected: HTTP 404 Not Found ({{}}). {WRONG_URL}"),
        (413, f"rejected: HTTP 413 {HTTPStatus(413).phrase} ({{}}). {TOO_LARGE}"),
        (499, "rejected: HTTP 499 ({})"),
        (500, f"outcome unknown: HTTP 500 Internal Server Error ({{}}); {DOUBT}"),
    ],
)
async def test_a_status_is_named_with_its_phrase_and_what_to_do(status: int, text: str) -> None:
    service = FakeService(Fault.status(status))
    error = await error_of(service.client(retry=RetryPolicy.none()))
    assert str(error) == text.format(PUSH_URL)
    assert error.__cause__ is None
