"""The inbox page: its files, from the package, under a policy that lets nothing else in."""

from __future__ import annotations

from importlib.resources import files
from pathlib import PurePosixPath

from aiohttp import web

from pushsdk.emulator.answers import refuse
from pushsdk.emulator.guard import Guard, Refusal

__all__ = ["Pages"]

_TYPES = {
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
_NO_FILE = Refusal(404, "no such page; the inbox is at /")
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'{images}; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)


class Pages:
    """Answers ``/`` and the files it loads. Pictures of other sites are shown where ``?images=1`` asks for them."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        folder = files("pushsdk.emulator") / "web"
        self._files = {
            file.name: (file.read_bytes(), _TYPES[suffix])
            for file in folder.iterdir()
            if (suffix := PurePosixPath(file.name).suffix) in _TYPES
        }

    def answer(self, request: web.BaseRequest) -> web.Response | None:
        """What a browser asks for: a file of the page, or a refusal. None where it is no browser's request."""
        if request.method not in {"GET", "HEAD"}:
            return None
        name = request.path.removeprefix("/") or "index.html"
        refusal = self._guard.foreign(request.headers) or (None if name in self._files else _NO_FILE)
        if refusal is not None:
            return refuse(refusal)
        body, kind = self._files[name]
        images = " https: http:" if request.query.get("images") == "1" else ""
        headers = {
            "Content-Security-Policy": _POLICY.format(images=images),
            "Cache-Control": "no-cache",
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Cross-Origin-Opener-Policy": "same-origin",
        }
        return web.Response(body=body, content_type=kind, charset="utf-8", headers=headers)
