"""An object store that speaks S3's protocol, with a settable clock and responses that are lost or refused by script."""

import hashlib
import re
import threading
import time
from collections import Counter
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

KEYS = {"access_key_id": "key", "secret_access_key": "s3cret", "region": "us-east-1"}
_OBJECT = (
    "<Contents><Key>{}</Key><Size>{}</Size><ETag>{}</ETag><LastModified>2026-01-01T00:00:00Z</LastModified></Contents>"
)


class ObjectServer:
    """One bucket."""

    def __init__(self):
        self.objects = {}
        #: Requests by method, those in progress included.
        self.requests = Counter()
        #: Seconds by which its clock is ahead.
        self.ahead = 0.0
        #: A status instead of an answer; or done, and the answer is "lost" with its connection, or "late", a 503.
        self.fate = lambda method, key: None
        #: False for a store that ignores this header.
        self.obeys = {"If-None-Match": True, "If-Match": True}
        self.lock = threading.Lock()
        self.url = ""
        self.bucket = "claims"

    def answer(self, method, path, body, headers):
        """Do a request and return status, headers and body."""
        bucket, _, key = urlsplit(path).path.strip("/").partition("/")
        if bucket != self.bucket:
            return 404, {}, b"<Error><Code>NoSuchBucket</Code></Error>"
        if method == "GET" and not key:
            return 200, {}, self._page(parse_qs(urlsplit(path).query)["prefix"][0])
        data, changed = self.objects.get(key, (b"", 0.0))
        if method == "PUT":
            tag = _tag(data) if key in self.objects else None
            is_free = not (self.obeys["If-None-Match"] and headers.get("if-none-match") and tag)
            if not is_free or (self.obeys["If-Match"] and headers.get("if-match", tag) != tag):
                return 412, {}, b"<Error><Code>PreconditionFailed</Code></Error>"
            self.objects[key] = body, time.time() + self.ahead
            return 200, {"ETag": _tag(body)}, b""
        if method == "POST":
            self.objects.pop(re.findall("<Key>(.*)</Key>", body.decode())[0])
            return 200, {}, b"<DeleteResult/>"
        if key not in self.objects:
            return 404, {}, b"<Error><Code>NoSuchKey</Code></Error>"
        return 200, {"ETag": _tag(data), "Last-Modified": formatdate(changed, usegmt=True)}, data

    def _page(self, prefix):
        rows = [
            _OBJECT.format(name, len(data), _tag(data))
            for name, (data, _) in self.objects.items()
            if name.startswith(prefix)
        ]
        return f"<ListBucketResult>{''.join(rows)}<IsTruncated>false</IsTruncated></ListBucketResult>".encode()


def _tag(data):
    return f'"{hashlib.md5(data).hexdigest()}"'


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do(self):
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        with self.store.lock:
            self.store.requests[self.command] += 1
            fate = self.store.fate(self.command, self.path)
            answer = (
                (fate, {}, b"") if isinstance(fate, int) else self.store.answer(self.command, self.path, body, headers)
            )
        if fate == "lost":
            self.close_connection = True
            return
        status, fields, data = (503, {}, b"") if fate == "late" else answer
        self.send_response(status)
        for name, value in {**fields, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, *_):
        """Say nothing."""


for _method in ("GET", "HEAD", "POST", "PUT"):
    setattr(_Handler, f"do_{_method}", _Handler.do)


class _HTTPServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_):
        """A client may be killed."""


@contextmanager
def object_server():
    """Run an object store in threads."""
    store = ObjectServer()
    with _HTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"store": store})) as server:
        store.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield store
        finally:
            server.shutdown()
            thread.join()
