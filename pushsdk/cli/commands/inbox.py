"""``pushsdk emulator requests``, ``tail`` and ``reset``: the pushes that a running emulator has got with this key."""

import itertools
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from datetime import datetime
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Annotated, Any
from urllib.parse import urlencode, urlsplit

import msgspec
from cyclopts import Parameter

from pushsdk._core.address import is_loopback
from pushsdk.cli.exit import CommandError, Exit
from pushsdk.cli.options import JsonLines
from pushsdk.cli.settings import EMULATOR, find, resolve, running_emulators
from pushsdk.cli.terminal import print_json, say, warn
from pushsdk.emulator.control.routes import ROOT
from pushsdk.emulator.control.views import RequestPage
from pushsdk.emulator.snippets import row_of
from pushsdk.emulator.store.records import RequestSummary

Profile = Annotated[str | None, Parameter(help="Ask the emulator in this profile.")]
_NEWEST = 1000


def requests(search: str = "", /, *, profile: Profile = None, json: JsonLines = False) -> int:
    """Print your Api-Key's newest 1,000 requests, oldest first; with ``json`` with their bodies.

    Args:
        search: Select requests by words and terms, such as 'user:u1 status:429'.
    """
    if json:
        with _answer("GET", "/export", profile, search=search) as answer:
            for line in reversed(answer.read().splitlines()):
                print_json(msgspec.Raw(line))
        return Exit.DONE
    with _answer("GET", "/requests", profile, search=search, limit=_NEWEST) as answer:
        found = msgspec.json.decode(answer.read(), type=RequestPage).requests
    for request in reversed(found):
        say(_line(request))
    if not found:
        warn("found no such requests with this Api-Key; the page shows all inboxes")
    return Exit.DONE


def tail(*, profile: Profile = None, json: JsonLines = False) -> int:
    with _answer("GET", "/events", profile) as answer:
        for event, data in itertools.pairwise(line.decode().rstrip("\n") for line in answer):
            if event == "event: request":
                request = msgspec.json.decode(data.removeprefix("data: "), type=RequestSummary)
                print_json(request) if json else say(_line(request))
                sys.stdout.flush()
    raise CommandError("the emulator has ended", Exit.INCOMPLETE)


def reset(*, profile: Profile = None) -> int:
    with _answer("POST", "/reset", profile) as answer:
        say(f"emptied the inbox on {urlsplit(answer.url).netloc}")
    return Exit.DONE


def _settings(profile: str | None) -> Mapping[str, Any]:
    """Return the settings with this profile. Without one, those for an address here, else for the running emulator."""
    if profile is not None:
        return resolve({"profile": profile})
    named = find({}).get("base_url")
    is_here = False
    with suppress(ValueError):  # resolve refuses a URL that can't be split
        is_here = named is not None and is_loopback(str(named.value))
    return resolve({"profile": EMULATOR} if running_emulators() and not is_here else {})


@contextmanager
def _answer(method: str, path: str, profile: str | None, **query: object) -> Iterator[HTTPResponse]:
    """Yield the emulator's answer. Raises CommandError."""
    settings = _settings(profile)
    url = urlsplit(settings["base_url"])
    origin, connect = f"{url.scheme}://{url.netloc}", HTTPSConnection if url.scheme == "https" else HTTPConnection
    headers = {"Api-Key": settings["api_key"].reveal(), "Content-Type": "application/json"}
    with closing(connect(url.netloc)) as connection:
        try:
            connection.request(method, f"{ROOT}{path}?{urlencode(query)}", headers=headers)
        except OSError as error:
            raise CommandError(f"{origin} can't be reached: {error}. Is the emulator up?", Exit.CANNOT_RUN) from None
        try:
            answer = connection.getresponse()
            answer.url = origin
            if answer.status != 200:
                raise CommandError(f"{origin} answered {answer.status}: is it the emulator?", Exit.CANNOT_RUN)
            yield answer
        except BrokenPipeError:  # of stdout, whose reader has left
            raise
        except (OSError, HTTPException, msgspec.MsgspecError):
            raise CommandError(f"{origin} answered something else: is it the emulator?", Exit.CANNOT_RUN) from None


def _line(request: RequestSummary) -> str:
    return f"{datetime.fromtimestamp(request.time):%H:%M:%S} {'  '.join(filter(None, row_of(request)))}"
