"""The page: the static files beside this module, the guide under ``/docs``, and their responses."""

from functools import cached_property
from importlib.resources import files

from aiohttp import web

from pushsdk.emulator.guard import Guard, Refused
from pushsdk.emulator.web.guide import page

_TYPES = {"css": "text/css", "html": "text/html", "js": "text/javascript", "png": "image/png", "svg": "image/svg+xml"}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'{images}; connect-src 'self'; "
    "base-uri 'none'; form-action {forms}; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
_HEADERS = {"Cache-Control": "no-cache", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}
_HEADERS |= dict.fromkeys(("Cross-Origin-Resource-Policy", "Cross-Origin-Opener-Policy"), "same-origin")


class Pages:
    """Serves ``/``, its files, and the guide under ``/docs``.

    With ``?images=1`` the page may load pictures from other sites.
    """

    def __init__(self, guard: Guard) -> None:
        self._guard = guard

    @cached_property
    def _files(self) -> dict[str, tuple[bytes, str]]:
        """Content and type of each file by name. The path of a request never reaches the file system."""
        return {
            f"{folder}{file.name}": (file.read_bytes(), _TYPES[suffix])
            for folder, package in (("", __name__), ("docs/", "pushsdk.docs"))
            for file in files(package).iterdir()
            if (suffix := file.name.rpartition(".")[2]) in _TYPES
        }

    def respond(self, request: web.BaseRequest) -> web.Response | None:
        """Return a page file; None for a request that no browser sends to open a page. Raises `Refused`."""
        if request.method not in {"GET", "HEAD"}:
            return None
        name = request.path.removeprefix("/") or "index.html"
        is_guide = name.partition("/")[0] == "docs"
        self._guard.check_origin(request.headers)
        body, kind = self._files.get(name) or _guide(name, request.query.get("q", ""))
        images = " https: http:" if request.query.get("images") == "1" else ""
        policy = _POLICY.format(images=images, forms="'self'" if is_guide else "'none'")
        headers = {**_HEADERS, "Content-Security-Policy": policy}
        return web.Response(body=body, content_type=kind, charset="utf-8", headers=headers)


def _guide(name: str, query: str) -> tuple[bytes, str]:
    """Return content and type of a guide page. Raises `Refused` if there is none."""
    section, _, topic = name.partition("/")
    html = page(topic or "index", query) if section == "docs" else None
    if html is None:
        raise Refused(404, "no such page; the inbox is at /")
    return html.encode(), "text/html"
