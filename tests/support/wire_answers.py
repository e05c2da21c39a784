"""Answers, as bytes: documented ones, surprising ones, and ones that are no HTTP at all."""

import gzip
import zlib
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime


def response(status, body=b"", **headers):
    """A whole response: ``Retry_After=1`` becomes ``Retry-After: 1``, Content-Length is set unless given."""
    fields = {name.replace("_", "-"): value for name, value in headers.items()}
    if not {"Content-Length", "Transfer-Encoding"} & fields.keys() and status != 204:
        fields["Content-Length"] = len(body)
    lines = [f"HTTP/1.1 {status:03} Anything", *(f"{name}: {value}" for name, value in fields.items())]
    return "\r\n".join([*lines, "", ""]).encode() + body


def http_date(seconds):
    """The HTTP date that is ``seconds`` from now."""
    return format_datetime(datetime.now(UTC) + timedelta(seconds=seconds), usegmt=True)


NO_CONTENT = response(204)

# Bytes that no HTTP parser may accept as a response. aiohttp reports all of them as status 400.
UNREADABLE = {
    "garbage": b"\x00\xff\x13\x37 nothing you know \x1b[31m\r\n\r\n",
    "an SMTP greeting": b"220 mail.example ESMTP ready\r\n",
    "HTTP/2 frames": b"\x00\x00\x12\x04\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x64\x00\x04\x00\x10\x00\x00",
    "an unknown HTTP version": b"HTTP/7.3 204 No Content\r\n\r\n",
    "two Content-Lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
    "Content-Length with chunks": (
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
    ),
    "a negative Content-Length": b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
    "a NUL in a header": b"HTTP/1.1 204 No\x00Content\r\nX-A: a\x00b\r\n\r\n",
    "a header of 64 kB": b"HTTP/1.1 204 No Content\r\nX-A: " + b"a" * 65536 + b"\r\n\r\n",
    "a thousand headers": b"HTTP/1.1 204 No Content\r\n" + b"X-A: a\r\n" * 1000 + b"\r\n",
}

# Heads of a 204, and the bytes behind it: aiohttp reports all of them as status 400 if both come in one packet.
_CHUNKED = b"HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n"
BEHIND = {
    "a body that was not announced": (b"HTTP/1.1 204 No Content\r\n\r\n", b"surprise, a body"),
    "an empty body in chunks": (_CHUNKED, b"0\r\n\r\n"),
    "a chunk": (_CHUNKED, b"2\r\n{}\r\n0\r\n\r\n"),
    "a body of two bytes": (response(204, Content_Length=2), b"{}"),
    "a body as if it were a 400": (response(204, Content_Length=2), response(400)),
    "a body, after a 102": (b"HTTP/1.1 102 Processing\r\n\r\n" + response(204, Content_Length=2), b"{}"),
}


def _bomb():
    packer = zlib.compressobj(9, wbits=31)
    zeros = b" " * (1 << 20)
    return b"".join(packer.compress(zeros) for _ in range(16)) + packer.flush()


# Responses with status 200 and a complete but useless body: each campaign was created.
BODIES = {
    "is not JSON, whatever its type says": response(200, b"it works", Content_Type="application/json"),
    "is empty": response(200),
    "is empty HTML": response(200, Content_Type="text/html"),
    "is empty, in chunks": response(200, b"0\r\n\r\n", Transfer_Encoding="chunked"),
    "is JSON that calls itself HTML": response(200, b'\n{"id":1}', Content_Type="text/html; charset=utf-8"),
    "is JSON without a type": response(200, b'["x"]'),
    "is a problem document": response(200, b"<", Content_Type="Application/problem+JSON; charset=utf-8"),
    "is bad UTF-8": response(200, b'{"uuid":"\xff\xfe"}', Content_Type="application/json"),
    "is 100 000 brackets deep": response(200, b"[" * 100_000),
    "has no uuid": response(200, b'{"id":1}', Content_Type="application/json"),
    "has a number for a uuid": response(200, b'{"uuid":7}', Content_Type="application/json"),
    "is a gzip bomb": response(200, _bomb(), Content_Encoding="gzip", Content_Type="application/json"),
    "is gzip and cut off": response(
        200, gzip.compress(b'{"uuid":"x"}' * 99)[:40], Content_Encoding="gzip", Content_Type="application/json"
    ),
}

# 200s that may come from something else than the service: a login page, a proxy's notice.
FOREIGN = {
    "an HTML page": response(200, b"<html>log in</html>", Content_Type="text/html; charset=utf-8"),
    "a page without a type": response(200, b"\r\n <!doctype html>"),
    "plain text": response(200, b"OK", Content_Type="text/plain"),
    "white space": response(200, b" " * 9, Content_Type="text/html"),
    "compressed, without a type": response(200, gzip.compress(b"{}"), Content_Encoding="gzip"),
    "an HTML page in chunks": response(
        200, b"6\r\n<html>\r\n0\r\n\r\n", Transfer_Encoding="chunked", Content_Type="text/html"
    ),
}
