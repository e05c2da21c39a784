"""A request of the client's own session that is written at once, without a task that writes its body.

aiohttp makes a task for each body, before Python 3.12 one that starts a loop turn later: about a tenth of a POST. A
body that the connection takes without waiting needs none. What is leant on here is private to aiohttp, so it is used
with the releases that the contract test was run with; any other gets its own class, which does the same, slower.
"""

from __future__ import annotations

import aiohttp
from aiohttp.client_reqrep import ClientRequest
from aiohttp.connector import Connection
from aiohttp.http_writer import StreamWriter

__all__ = ["WHOLE_BODY_LIMIT", "WholeRequest", "request_class"]

# Together with any head it stays below the 64 KiB from which aiohttp waits for the connection to drain.
WHOLE_BODY_LIMIT = 32 * 1024
KNOWN_RELEASES = ("3.14.",)


class WholeRequest(ClientRequest):
    """A POST of a payload with a known size and content type, by HTTP/1.1, to an origin."""

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
