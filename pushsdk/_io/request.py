"""A request of the client's own session that is written at once, without a task that writes its body.

aiohttp makes a task for each body, before Python 3.12 one that starts a loop turn later: about a tenth of a POST. A
body that the connection takes without waiting needs none. What is leant on here is private to aiohttp, so it is used
with the releases that the contract test was run with; any other gets its own class, which does the same, slower.
"""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
from aiohttp import hdrs
from aiohttp.client_reqrep import ClientRequest
from aiohttp.connector import Connection
from aiohttp.http import SERVER_SOFTWARE, HttpVersion, HttpVersion11
from aiohttp.http_writer import StreamWriter
from aiohttp.payload import Payload
from multidict import CIMultiDict
from yarl import URL

__all__ = ["WHOLE_BODY_LIMIT", "WholeRequest", "request_class"]

# Together with any head it stays below the 64 KiB from which aiohttp waits for the connection to drain.
WHOLE_BODY_LIMIT = 32 * 1024
KNOWN_RELEASES = ("3.14.",)


class WholeRequest(ClientRequest):
    """A POST of a payload with a known size and content type, by HTTP/1.1, to an origin."""

    def __init__(
        self,
        method: str,
        url: URL,
        *,
        data: Any = None,
        headers: Any = None,
        loop: asyncio.AbstractEventLoop | None = None,
        response_class: type[aiohttp.ClientResponse] | None = None,
        session: Any = None,
        ssl: Any = True,
        timer: Any = None,
        traces: Any = None,
        version: HttpVersion = HttpVersion11,
        **others: Any,
    ) -> None:
        """What aiohttp's own does, without what this kind of request never has: cookies, proxy, encodings, parameters.

        That takes 5 us. Where it has any of them, or the loop debugs, aiohttp's own does it.
        """
        plain = type(headers) is CIMultiDict and isinstance(data, Payload) and not any(others.values())
        if not plain or loop is None or timer is None or loop.get_debug():
            super().__init__(
                method,
                url,
                data=data,
                headers=headers,
                loop=loop,
                response_class=response_class,
                session=session,
                ssl=ssl,
                timer=timer,
                traces=traces,
                version=version,
                **others,
            )
            return
        head: CIMultiDict[str] = CIMultiDict()
        head[hdrs.HOST] = url.host_port_subcomponent or ""
        head.extend(headers)
        for name, value in self.DEFAULT_HEADERS.items():
            head.setdefault(name, value)
        head.setdefault(hdrs.USER_AGENT, SERVER_SOFTWARE)
        head[hdrs.CONTENT_LENGTH] = str(data.size)
        head.setdefault(hdrs.CONTENT_TYPE, data.content_type)
        self.headers = head
        self.method, self.url, self.original_url = method, url, url
        self.loop, self._session, self._timer, self._ssl = loop, session, timer, ssl
        self.response_class = response_class or aiohttp.ClientResponse
        self.version, self.length, self.chunked, self.compress = version, None, None, None
        self.proxy = self.proxy_auth = self.proxy_headers = self.server_hostname = None
        self._body, self._traces = data, traces or []

    async def send(self, conn: Connection) -> aiohttp.ClientResponse:
        """See ``ClientRequest.send``."""
        protocol, body = conn.protocol, self._body
        if protocol is None or protocol.writing_paused or body is None or (body.size or 0) > WHOLE_BODY_LIMIT:
            return await super().send(conn)
        writer = StreamWriter(protocol, self.loop)
        await writer.write_headers(f"{self.method} {self.url.raw_path_qs} HTTP/1.1", self.headers)
        # Where it fails, the protocol is told, and whoever reads the answer from it.
        await self.write_bytes(writer, conn, body.size)
        return aiohttp.ClientResponse(
            self.method,
            self.original_url,
            writer=None,
            continue100=None,
            timer=self._timer,
            request_info=self.request_info,
            traces=self._traces,
            loop=self.loop,
            session=self._session,
            stream_writer=writer,
        )


def request_class(release: str = aiohttp.__version__) -> type[ClientRequest]:
    """The class for the client's own session."""
    return WholeRequest if release.startswith(KNOWN_RELEASES) else ClientRequest
