"""The ``push`` fixture: an emulator in a thread, and one test's inbox in it, with faults and expectations."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, Self

import msgspec
from msgspec import Struct

from pushsdk._core.kinds import Count, CountOrZero, Delay, check, check_arguments
from pushsdk._core.placeholders import TEXTS, render
from pushsdk._core.words import count as counted
from pushsdk.emulator import Campaign, Emulator, Fault, Push
from pushsdk.emulator.faults import Rules, preset
from pushsdk.emulator.server import Limited, Shift
from pushsdk.emulator.snippets import quoted, row_of, show_texts
from pushsdk.emulator.store.records import RequestSummary
from pushsdk.emulator.store.search import parse

__tracebackhide__ = True  # by pytest: a failure shows the test's line

_MAX_ROWS = 20  # requests, or users, in a failure text
_NOTHING = "no request with this test's key."
_ELSEWHERE = (
    "{} had another key or another path: does the code use push.base_url and push.api_key, which push_env sets for "
    "code that reads the variables? To see another key's requests: push.emulator.inbox(key)"
)
_LOOK_INTERVAL = 0.005  # seconds
_OPTIONAL = "Pass `required=False` if that is fine."
_BLOCKS = "wait_for() blocked this thread's event loop, and every task that would send: use `await push.until(...)`."


@contextmanager
def in_thread(emulator: Emulator) -> Iterator[Emulator]:
    """Run an emulator in a thread with its own event loop, for tests with any loop or none.

    Entering raises the same errors as opening the emulator.
    """
    started: Future[asyncio.AbstractEventLoop] = Future()

    def run() -> None:
        # The tests may have set another event loop policy; its loops may lack what the emulator needs.
        with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
            started.set_result(runner.get_loop())
            runner.get_loop().run_forever()

    thread = threading.Thread(target=run, name="pushsdk-emulator", daemon=True)
    thread.start()
    loop = started.result()
    try:
        asyncio.run_coroutine_threadsafe(emulator.__aenter__(), loop).result()
        try:
            yield emulator
        finally:
            asyncio.run_coroutine_threadsafe(emulator.__aexit__(), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


class SentPush(Struct, frozen=True, kw_only=True):
    """An accepted push, or a campaign if ``campaign`` is its uuid, with its texts as a user sees them.

    ``message`` and ``custom_fields`` are as sent. ``title``, ``subtitle`` and ``body`` map languages to texts, with
    placeholders filled from the custom fields. ``time`` is in seconds since the epoch.
    """

    id: int
    time: float
    user_ids: tuple[str, ...]
    message: dict[str, Any]
    custom_fields: dict[str, Any] | None
    campaign: str | None
    title: dict[str, str]
    subtitle: dict[str, str]
    body: dict[str, str]


def _sent_push(source: Push | Campaign) -> SentPush:
    """Return an accepted push or campaign."""
    content = msgspec.json.decode(source.body)
    message, custom_fields = content.get("message", {}), content.get("customFields")
    texts = {
        part: {language: render(template, custom_fields or {}) for language, template in message.get(part, {}).items()}
        for part in TEXTS
    }
    return SentPush(
        id=source.id,
        time=source.time,
        user_ids=tuple(content.get("userIds", ())),
        message=message,
        custom_fields=custom_fields,
        campaign=source.uuid if isinstance(source, Campaign) else None,
        **texts,
    )


class FaultContext:
    """A context manager with faults, made by `PushInbox.fault` and `PushInbox.faults`.

    A fault that never fired fails the test: the test did not exercise the failure.
    """

    def __init__(self, push: "PushInbox", faults: Sequence[Fault], *, required: int, seed: int) -> None:
        self._push = push
        self._inbox = push._inbox
        self._faults = faults
        self._required = required  # how many faults must fire
        self._seed = seed
        self._counts: Callable[[], Mapping[str, int]] = dict  # set by __enter__
        self._before = 0  # requests before; set by __enter__
        which = "This fault was" if len(faults) == 1 else "These faults were"
        never_used = f"{which} never used: write `with push.fault(...):`\n{_calls(faults)}"
        #: Failure message that no error has raised yet; set by __enter__ and __exit__.
        self.pending_failure: str | None = never_used

    @property
    def hits(self) -> int:
        """The number of requests that the faults have changed so far."""
        return sum(self._counts().values())

    def __enter__(self) -> Self:
        self._before = len(self._inbox.requests())
        self._added = self._inbox.adding(self._faults, seed=self._seed)
        self._counts = self._added.__enter__()
        self.pending_failure = None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        counts = list(self._counts().values())
        self._added.__exit__(kind, error, trace)
        idle = [fault for fault, hits in zip(self._faults, counts, strict=True) if not hits]
        if len(counts) - len(idle) >= self._required:
            return
        if error is None:
            raise AssertionError(self._never_fired(idle))
        if isinstance(error, Exception):  # else the test was skipped or interrupted
            self.pending_failure = self._never_fired(idle)  # in case the test expects the error
            error.add_note(self.pending_failure)

    def _never_fired(self, idle: Sequence[Fault]) -> str:
        requests = self._inbox.requests()[self._before :]
        which = "This fault" if len(idle) == 1 else "These faults"
        if not requests:
            why = "no request was received in its `with`"
        elif all(fault.probability for fault in idle):
            why = f"none won its draw (seed={self._seed})"
        elif len(idle) < len(self._faults):
            why = "no request met the conditions, or an earlier fault took it: give that one first=1"
        else:
            why = "no request met the conditions"
        return f"{which} never fired: {why}. {_OPTIONAL}\n{_calls(idle)}\n\n{self._push._summarize(requests)}"


def _calls(faults: Sequence[Fault]) -> str:
    return "\n".join(f"  {fault}" for fault in faults)


class PushInbox(Limited):
    """One test's push service: its URL, its Api-Key, the requests accepted with that key, and faults.

    Works in sync and async tests alike, as the service runs in another thread.
    """

    emulator: Emulator
    """The session's emulator, which all tests share."""
    base_url: str
    """The URL that clients send to."""
    url: str
    """The page's URL, with all inboxes, available during the session."""
    __slots__ = ("_ahead", "_before", "_contexts", "_inbox", "base_url", "emulator", "url")

    def __init__(self, emulator: Emulator, *, api_key: str, label: str) -> None:
        self.emulator = emulator
        self.base_url, self.url = emulator.base_url, emulator.url
        self._inbox = emulator.inbox(api_key)
        super().__init__(self._inbox._inboxes, api_key)
        self._inbox.label(label)
        self._ahead = 0.0  # seconds that this test advanced the clock
        self._before = emulator.requests  # from earlier tests
        self._contexts: list[FaultContext] = []

    def __repr__(self) -> str:
        return f"PushInbox({self.base_url!r})"

    def close(self) -> None:
        """Reset the clock and delete the inbox, so that the next test starts clean."""
        if self._ahead:
            self.advance(-self._ahead)
        self._inbox.forget()

    def sent_to(self, user_id: str) -> list[SentPush]:
        """Return the pushes that this user received, oldest first."""
        return self._sent(_line(user_id))

    def summary(self) -> str:
        """Return the requests that the service received, as a failure text."""
        return self._summarize(None)

    def pending_failure(self) -> str | None:
        """Return a failure for a test that passed although one of its faults never fired, else None."""
        return next((context.pending_failure for context in self._contexts if context.pending_failure), None)

    # Expectations

    def assert_sent(
        self,
        user_id: str | None = None,
        *,
        title: str | None = None,
        body: str | None = None,
        language: str | None = None,
        count: CountOrZero | None = None,
    ) -> list[SentPush]:
        """Return the matching accepted pushes, oldest first. Fail if there are none, or not exactly ``count``.

        ``title`` and ``body`` must equal the whole text, with placeholders filled, in ``language`` or else in any.
        Without ``user_id``, pushes to all users and campaigns match.
        """
        check("count", count, CountOrZero | None, ValueError)
        texts = _wanted_texts(title, body, language)
        candidates = self._sent(_line(user_id))
        matches = [push for push in candidates if _has_texts(push, texts, language)]
        if not matches if count is None else len(matches) != count:
            self._fail(
                f"Expected {_expected(user_id, texts, language, count)}, got {len(matches) or 'none'}.",
                *(f"  {part}: {show_texts(getattr(push, part))}" for push in candidates[-5:] for part in texts),
            )
        return matches

    def assert_nothing_sent(self, user_id: str | None = None) -> None:
        """Fail if a push or campaign was accepted, or a push to this user."""
        if sent := self._sent(_line(user_id)):
            what = "push or campaign" if user_id is None else f"push to {quoted(user_id)}"
            self._fail(f"Expected no {what}, got {len(sent):,}.")

    def assert_no_duplicates(self) -> None:
        """Fail if a user received the same push, by message and custom fields, more than once."""
        if users := self.duplicates():
            self._fail(f"{counted(len(users))} received the same push more than once:", show_users(users))

    # Waiting

    def wait_for(
        self,
        user_id: str | None = None,
        *,
        search: str = "",
        count: Count = 1,
        condition: Callable[[], object] | None = None,
        timeout: Delay = 5.0,
    ) -> list[SentPush]:
        """Block until ``count`` requests match: to this user, and to this search line of the inbox page.

        Only accepted requests match, unless the search has ``is:refused``, ``is:failed`` or a status. A ``condition``
        replaces the count: it is called every few milliseconds until it returns true. Returns the accepted
        matches; fails after ``timeout`` seconds. In an event loop use `until`, as this method blocks the loop.
        """
        line = _line(user_id, search)
        try:
            for _ in self._looks(line, count, condition, timeout):
                time.sleep(_LOOK_INTERVAL)
        except AssertionError as error:
            with suppress(RuntimeError):
                asyncio.get_running_loop()
                error.add_note(_BLOCKS)
            raise
        return self._sent(line)

    async def until(
        self,
        user_id: str | None = None,
        *,
        search: str = "",
        count: Count = 1,
        condition: Callable[[], object] | None = None,
        timeout: Delay = 5.0,
    ) -> list[SentPush]:
        """Wait like `wait_for`, without blocking the event loop."""
        line = _line(user_id, search)
        for _ in self._looks(line, count, condition, timeout):
            await asyncio.sleep(_LOOK_INTERVAL)
        return self._sent(line)

    # Faults, limits, time

    def fault(self, *faults: Fault, required: bool = True, seed: int = 0) -> FaultContext:
        """Return a context manager in which the service has these faults, tried before all other faults.

        For example ``with push.fault(Fault.status(503, first=2)):``. A fault that never fires fails the test, at the
        end of the ``with`` block, or at the end of the test if the block raised. ``required=False`` allows that.
        """
        if not faults:
            raise ValueError("fault() needs a Fault, for example push.fault(Fault.status(429))")
        Rules(faults)  # raises here for a wrong one, not at the `with`
        return self._context(faults, len(faults) if required else 0, seed)

    def faults(self, name: str, *, required: bool = True, seed: int = 0) -> FaultContext:
        """Return such a context manager for a preset, for example ``flaky``. At least one of its faults must fire."""
        return self._context(preset(name).faults, int(required), seed)

    def _context(self, faults: Sequence[Fault], required: int, seed: int) -> FaultContext:
        context = FaultContext(self, faults, required=required, seed=seed)
        self._contexts.append(context)
        return context

    def advance(self, seconds: Shift) -> None:
        """Advance the service's clock until the test ends: pushes expire."""
        self.emulator.advance(seconds)
        self._ahead += seconds

    def _sent(self, line: str) -> list[SentPush]:
        return [*map(_sent_push, self._store.sent(self._ref, parse(line)))]

    def _looks(self, line: str, count: Count, condition: Callable[[], object] | None, timeout: Delay) -> Iterator[None]:
        """Look until enough requests match or the condition is true, once more at the end; yield between looks."""
        check_arguments(PushInbox._looks, locals(), ValueError)
        look = condition or (lambda: len(self._inbox.requests(line)) >= count)
        end = time.monotonic() + timeout
        while True:
            is_last = time.monotonic() >= end
            if look():
                return
            if is_last:
                what = "the condition" if condition else self._missing(line, count)
                self._fail(f"Waited {timeout:g} s for {what}.")
            yield

    def _missing(self, line: str, count: int) -> str:
        matches = len(self._inbox.requests(line)) or "none"
        return f"{counted(count, 'request')} that the search `{line}` finds, got {matches}"

    def _fail(self, *problem: str) -> None:
        raise AssertionError("\n".join((*problem, "", self._summarize(None))))

    def _summarize(self, requests: Sequence[RequestSummary] | None) -> str:
        """Return a text that shows these requests, or all requests, for a failure."""
        received = self._inbox.requests()
        elsewhere = self.emulator.requests - self._before - len(received)
        return summary(received if requests is None else requests, elsewhere=max(0, elsewhere))


def _line(user_id: str | None, search: str = "") -> str:
    """Return the search line that finds these requests. Raises ValueError if it would find others."""
    check("user_id", user_id, str | None, ValueError)
    line = search
    if user_id is not None:
        escaped = user_id.replace("\\", "\\\\").replace('"', '\\"')
        line = f'user:"{escaped}" {search}'.rstrip()
    wanted = parse(line)
    if wanted.misread:
        use = 'for example is:refused, status:429, status:4xx, group:1 or title:"two words"'
        raise ValueError(f"search: there is no {wanted.misread}: use {use}")
    if not wanted.names_fate:
        line = f"{line} is:accepted".lstrip()
    if parse(line).partial:
        raise ValueError("search: a term needs a value, for example status:429, and a line has at most 50 terms")
    return line


def _wanted_texts(title: str | None, body: str | None, language: str | None) -> dict[str, str]:
    """Return the texts that are not None. Raises ValueError for a language without a text."""
    texts = {part: text for part, text in (("title", title), ("body", body)) if text is not None}
    if language is not None and not texts:
        raise ValueError("language needs a title or a body: pass the text in this language")
    return texts


def _has_texts(push: SentPush, wanted: Mapping[str, str], language: str | None) -> bool:
    """Return True if the push has every wanted text, in ``language`` or else in any."""
    for part, text in wanted.items():
        texts = getattr(push, part)
        if text not in (texts.values() if language is None else [texts.get(language)]):
            return False
    return True


def _expected(user_id: str | None, texts: Mapping[str, str], language: str | None, count: int | None) -> str:
    expected = "a push" if count is None else counted(count, "push")
    if user_id is not None:
        expected += f" to {quoted(user_id)}"
    if texts:
        expected += f" with {' and '.join(f'the {part} {quoted(text)}' for part, text in texts.items())}"
    return f"{expected} in {language}" if language else expected


def show_users(pushes: Mapping[str, int]) -> str:
    """Return users and their push counts, one user per line."""
    lines = [f"  {quoted(user)}: {counted(number, 'push')}" for user, number in list(pushes.items())[:_MAX_ROWS]]
    if len(pushes) > _MAX_ROWS:
        lines.append(f"  … and {len(pushes) - _MAX_ROWS:,} more")
    return "\n".join(lines)


def summary(requests: Sequence[RequestSummary], *, elsewhere: int) -> str:
    """Return the newest requests in an inbox, one per line. ``elsewhere`` counts the others."""
    accepted = sum(request.accepted for request in requests)
    received = f"{counted(len(requests), 'request')} with this test's key, and accepted {accepted:,}:"
    lines = [f"The service received {received if requests else _NOTHING}"]
    if len(requests) > _MAX_ROWS:
        lines.append(f"  … {len(requests) - _MAX_ROWS:,} older requests, then")
    rows = [row_of(request) for request in requests[-_MAX_ROWS:]]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines += [f"  {'  '.join(map(str.ljust, row, widths)).rstrip()}" for row in rows]
    return "\n".join([*lines, *_others(requests, elsewhere)])


def _others(requests: Sequence[RequestSummary], elsewhere: int) -> Iterator[str]:
    """Yield where the test's missing requests may be."""
    if elsewhere:
        yield _ELSEWHERE.format(counted(elsewhere, "request"))
    elif not requests:
        yield "Code that reads the variables needs push_env, which sets them."
