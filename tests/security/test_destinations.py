"""The destination of the Api-Key: the service, and no other server."""

import asyncio
import ssl
from contextlib import asynccontextmanager, suppress

import aiohttp
import pytest
from support import wire_tls
from support.wire_answers import response
from support.wire_faults import always, answering, when
from support.wire_judge import HELLO
from support.wire_rig import HTTP_OR_HTTPS, OWN_OR_INJECTED
from support.wire_server import WireServer

from pushsdk import (
    AsyncPushClient,
    CampaignRequest,
    NotSentError,
    Outcome,
    RejectedError,
    RetryPolicy,
)

KEY = "".join(map(chr, range(0x21, 0x7F)))


@asynccontextmanager
async def client_of(server, *, injected=False, **options):
    session = aiohttp.ClientSession() if injected else None
    context = wire_tls.client_context() if server.tls else None
    settings = {"api_key": KEY, "retry": RetryPolicy.none(), "ssl": context, "session": session, "timeout": 2.0}
    async with AsyncPushClient(server.base_url, **settings | options) as client:
        yield client
    if session is not None:
        await session.close()


# --- on the wire ---


@OWN_OR_INJECTED
async def test_every_visible_ascii_character_of_the_key_arrives_beside_the_callers_headers(injected):
    async def ask():
        return KEY

    async with WireServer() as server:
        for source in (KEY, lambda: KEY, ask):
            own = {"X-Team": "a b", "X-Empty": ""}
            async with client_of(server, injected=injected, api_key=source, headers=own) as client:
                own["X-Team"] = "changed later"
                await client.send("u", HELLO)
                await client.create_campaign(CampaignRequest(name="c"))
    expected = {"api-key": KEY, "x-team": "a b", "x-empty": "", "content-type": "application/json"}
    assert [request.headers.items() >= expected.items() for request in server.requests] == [True] * 6
    assert all(request.head.count(b"\r\nApi-Key: ") == 1 for request in server.requests)


async def test_a_cookie_header_goes_beside_the_cookies_of_a_session():
    async with (
        WireServer() as server,
        aiohttp.ClientSession(cookies={"node": "1"}) as session,
        AsyncPushClient(server.base_url, "key", session=session, headers={"Cookie": "gate=open"}) as client,
    ):
        await client.send("u", HELLO)
    assert {*server.requests[0].headers["cookie"].split("; ")} == {"node=1", "gate=open"}


# --- redirects ---


@OWN_OR_INJECTED
@pytest.mark.parametrize("status", [301, 307])
async def test_no_redirect_is_followed_and_the_error_names_the_host_alone(status, injected):
    async with WireServer() as other:
        target = f"http://localhost:{other.port}/secret/path?user=u-marker#f"
        script = when(always, answering(response(status, Location=target)))
        options = {"injected": injected, "retry": RetryPolicy.at_least_once()}
        async with WireServer(script) as server, client_of(server, **options) as client:
            for call in (client.send("u-marker", HELLO), client.create_campaign(CampaignRequest(name="c"))):
                with pytest.raises(
                    RejectedError, match=rf"HTTP {status} [A-Z].*, a redirect to localhost: not followed"
                ) as excinfo:
                    await call
                text = f"{excinfo.value} {excinfo.value!r}"
                assert not [part for part in ("secret", "path", "u-marker", str(other.port)) if part in text]
                assert excinfo.value.status == status
                assert excinfo.value.outcome == Outcome.REJECTED
    assert other.connections == 0
    assert other.api_keys == set()
    assert server.begun == 2


# --- proxies and the environment ---


class Proxy:
    """A proxy that records what it can read, and tunnels to the requested host."""

    def __init__(self, refuse):
        self.refuse = refuse
        self.heads = []
        self.port = 0

    @property
    def url(self):
        """As ``proxy=`` takes it."""
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, reader, writer):
        """One connection."""
        self.heads.append(await reader.readuntil(b"\r\n\r\n"))
        if self.refuse:
            writer.write(self.refuse)
            await writer.drain()
        else:
            host, _, port = self.heads[-1].split(b" ")[1].rpartition(b":")
            upstream, back = await asyncio.open_connection(host.decode(), int(port))
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            with suppress(ConnectionError):
                await asyncio.gather(pipe(reader, back), pipe(upstream, writer))
        writer.close()


async def pipe(reader, writer):
    """Pass on what comes, then the end of it."""
    while data := await reader.read(65536):
        writer.write(data)
    writer.close()


@asynccontextmanager
async def proxy(refuse=b""):
    instance = Proxy(refuse)
    async with await asyncio.start_server(instance.serve, "127.0.0.1", 0) as server:
        instance.port = server.sockets[0].getsockname()[1]
        yield instance


@pytest.mark.parametrize("whose", ["client", "client, beside a session", "session"])
async def test_a_proxy_tunnels_https_and_never_sees_the_key(whose):
    async with (
        proxy() as between,
        WireServer(tls=wire_tls.good()) as server,
        aiohttp.ClientSession(proxy=between.url if whose == "session" else None) as session,
        client_of(
            server, session=None if whose == "client" else session, proxy=None if whose == "session" else between.url
        ) as client,
    ):
        await client.send("u", HELLO)
    assert server.processed == {"u": 1}
    assert server.api_keys == {KEY}
    assert [head.split(b" ")[0] for head in between.heads] == [b"CONNECT"]
    assert b"api-key" not in b"".join(between.heads).lower()
    assert KEY.encode() not in b"".join(between.heads)


@HTTP_OR_HTTPS
async def test_the_environments_proxies_and_netrc_are_not_used(tls, monkeypatch, tmp_path):
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login trap password trap\ndefault login trap password trap\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    monkeypatch.setenv("HOME", str(tmp_path))
    async with proxy() as trap, WireServer(tls=wire_tls.good() if tls else None) as server:
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, trap.url)
            monkeypatch.setenv(name.lower(), trap.url)
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        async with client_of(server) as client:
            await client.send("u", HELLO)
    assert trap.heads == []
    assert server.processed == {"u": 1}
    assert "authorization" not in server.requests[0].headers


# --- certificates ---


def unverifying():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


@pytest.mark.parametrize("lax", [lambda: False, unverifying])
async def test_a_session_that_verifies_nothing_does_not_leak_the_key_either(lax):
    connector = aiohttp.TCPConnector(ssl=lax())
    async with (
        WireServer(tls=wire_tls.untrusted()) as server,
        aiohttp.ClientSession(connector=connector) as session,
        client_of(server, session=session, ssl=None) as client,
    ):
        # The session's own request leaves a connection in the pool that nothing had verified.
        async with session.post(f"{server.base_url}/v1/push", data=b'{"userIds":[]}'):
            pass
        with pytest.raises(NotSentError, match="certificate"):
            await client.send("u", HELLO)
    assert server.api_keys - {None, ""} == set()
    assert server.processed == {}


TAKEN = b"HTTP/1.1 204 No Content\r\n\r\n"


@asynccontextmanager
async def proxied(kind, monkeypatch, **options):
    """Yield a proxy, a server, and a client whose session uses the proxy, by its settings or by the environment."""
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    async with proxy(TAKEN) as between, WireServer() as server:
        monkeypatch.setenv("http_proxy", between.url)
        proxies = {"trust_env": True} if kind == "environment" else {"proxy": between.url}
        async with aiohttp.ClientSession(**proxies) as session, client_of(server, session=session, **options) as client:
            yield between, server, client


PROXIED = pytest.mark.parametrize("kind", ["environment", "session"])


@PROXIED
async def test_a_sessions_proxy_does_not_read_the_key_of_plain_http(kind, monkeypatch):
    async with proxied(kind, monkeypatch) as (between, server, client):
        with pytest.raises(NotSentError, match="would read the Api-Key of plain http: use https"):
            await client.send("u", HELLO)
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        if kind == "environment":
            await client.send("v", HELLO)
    assert between.heads == []
    assert server.processed == ({"v": 1} if kind == "environment" else {})


@PROXIED
async def test_a_sessions_proxy_is_used_with_allow_insecure(kind, monkeypatch):
    async with proxied(kind, monkeypatch, allow_insecure=True) as (between, server, client):
        await client.send("u", HELLO)
    assert len(between.heads) == 1
    assert server.begun == 0
