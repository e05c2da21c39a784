"""The ``push`` fixture: an emulator in a thread, and an inbox of it for one test, with its faults and expectations."""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

import msgspec
from msgspec import Struct

from pushsdk._core.placeholders import render
from pushsdk._public import set_public_module
from pushsdk.emulator import Campaign, Emulator, Fault, Inbox, Push, ServiceLimits
from pushsdk.emulator.faults import preset
from pushsdk.emulator.store.records import RequestSummary
from pushsdk.emulator.store.search import parse
from pushsdk.testing.messages import plural, quoted, show_fault, show_texts, show_users, summary

__all__ = ["EmulatorThread", "FaultContext", "PushInbox", "SentPush"]

T = TypeVar("T")

_OPTIONAL = "A test that may pass without it says `required=False`."
_BLOCKS = (
    "wait_for() held up the event loop that runs in this thread, and whatever would send in it:"
    " use `await push.until(...)`."
)


class EmulatorThread:
    """An emulator in a thread with its own event loop, for the time of a ``with``: for tests with any loop, or none.

    Entering raises what opening the emulator raises.
    """

    def __init__(self, emulator: Emulator) -> None:
        self.emulator = emulator
        self._thread = threading.Thread(target=self._run, name="pushsdk-emulator", daemon=True)
        self._ready: Future[asyncio.AbstractEventLoop] = Future()  # the thread's loop; set by it
        self._end = asyncio.Event()  # belongs to that loop

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self._ready.result()
        except BaseException:
            self._thread.join()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ready.result().call_soon_threadsafe(self._end.set)
        self._thread.join()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine in the emulator's loop."""
        return asyncio.run_coroutine_threadsafe(work, self._ready.result())

    def _run(self) -> None:
        # A loop of a known kind, whatever kind the tests have chosen for theirs.
        with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        try:
            await self.emulator.__aenter__()
        except BaseException as error:  # noqa: BLE001 - raised again, in the thread that asked
            self._ready.set_exception(error)
            return
        try:
            self._ready.set_result(asyncio.get_running_loop())
            await self._end.wait()
        finally:
            await self.emulator.__aexit__(None, None, None)


class SentPush(Struct, frozen=True, kw_only=True):
    """One accepted push, or a campaign where ``campaign`` is its uuid, with its texts as a user sees them.

    ``message`` and ``custom_fields`` are as they were sent. ``title``, ``subtitle`` and ``body`` are maps of language
    to text, with their placeholders filled: from the custom fields, or from the user's row of the campaign's segment.
    ``time`` is in seconds since the epoch.
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


class _Body(Struct, rename="camel"):
    """The fields that a push and a campaign have in common."""

    user_ids: tuple[str, ...] = ()
    message: dict[str, Any] = {}
    custom_fields: dict[str, Any] | None = None


def sent_push(
    number: int, moment: float, body: bytes, *, campaign: str | None = None, fields: Mapping[str, Any] | None = None
) -> SentPush:
    """Return the accepted body, with the user's ``fields`` if it is a campaign's."""
    sent = msgspec.json.decode(body, type=_Body)
    values = fields or sent.custom_fields or {}
    title, subtitle, text = (
        {language: render(words, values) for language, words in sent.message.get(part, {}).items()}
        for part in ("title", "subtitle", "body")
    )
    return SentPush(
        id=number,
        time=moment,
        user_ids=sent.user_ids,
        message=sent.message,
        custom_fields=sent.custom_fields,
        campaign=campaign,
        title=title,
        subtitle=subtitle,
        body=text,
    )


class FaultContext:
    """Faults for the time of a ``with``, made by `PushInbox.fault` and `PushInbox.faults`.

    A test of a failure that never happened has tested nothing: it fails.
    """

    def __init__(
        self,
        inbox: Inbox,
        faults: Sequence[Fault],
        *,
        summarize: Callable[[Sequence[RequestSummary]], str],
        needed: Literal["each", "any", "none"],
        seed: int,
    ) -> None:
        self._inbox = inbox
        self._faults = faults
        self._summarize = summarize
        self._needed = needed  # how many of them have to fire
        self._seed = seed
        self._added = inbox.adding(faults, seed=seed)
        self._counts: Callable[[], Mapping[str, int]] = dict  # set by __enter__
        self._newest = 0  # the last request before; set by __enter__
        #: Why the faults tested nothing, if no raised error says so; set by __enter__ and __exit__.
        self.pending_failure: str | None = None if needed == "none" else self._never_used()

    @property
    def hits(self) -> int:
        """How many times they acted so far."""
        return sum(self._counts().values())

    def __enter__(self) -> Self:
        self._newest = max((request.id for request in self._inbox.requests()), default=0)
        self._counts = self._added.__enter__()
        self.pending_failure = None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        __tracebackhide__ = True
        counts = list(self._counts().values())
        self._added.__exit__(kind, error, trace)
        idle = [fault for fault, hits in zip(self._faults, counts, strict=True) if not hits]
        if self._needed == "none" or not idle or (self._needed == "any" and len(idle) < len(self._faults)):
            return
        if error is None:
            raise AssertionError(self._never_fired(idle))
        if isinstance(error, Exception):  # else the test is over: skipped, or interrupted
            self.pending_failure = self._never_fired(idle)  # for a test that expects the error
            error.add_note(self.pending_failure)

    def _never_fired(self, idle: Sequence[Fault]) -> str:
        requests = [request for request in self._inbox.requests() if request.id > self._newest]
        which = "This fault" if len(idle) == 1 else "None of these faults" if self._needed == "any" else "These faults"
        never = "ever" if which.startswith("None") else "never"
        if not requests:
            why = "no request came in its `with`"
        elif all(fault.probability for fault in idle):
            why = f"none won its draw (seed={self._seed})"
        else:
            why = "no request met the conditions"
        return f"{which} {never} fired: {why}. {_OPTIONAL}\n{_calls(idle)}\n\n{self._summarize(requests)}"

    def _never_used(self) -> str:
        which = "This fault was" if len(self._faults) == 1 else "These faults were"
        return f"{which} never used: write `with push.fault(...):`\n{_calls(self._faults)}"


def _calls(faults: Sequence[Fault]) -> str:
    return "\n".join(f"  {show_fault(fault)}" for fault in faults)


class PushInbox:
    """The push service as one test sees it: an address and a key of its own, what was accepted with them, and faults.

    All of it can be used in sync and async tests alike: the service is in another thread.
    """

    def __init__(self, host: EmulatorThread, *, api_key: str, label: str) -> None:
        self.api_key = api_key
        self._host = host
        self._inbox = host.emulator.inbox(api_key)
        self._inbox.label(label)
        self._ahead = 0.0  # seconds that this test set the clock forward
        self._before = host.emulator.requests  # of all tests that were before
        self._armed: list[FaultContext] = []  # all that this test asked for
        self.has_shown_summary: bool = False  # a failure has shown what the service got; set by _summarize

    def __repr__(self) -> str:
        return f"PushInbox({self.base_url!r})"

    def close(self) -> None:
        """Leave nothing to the next test."""
        if self._ahead:
            self.advance(-self._ahead)
        self._do(self._inbox.forget)

    # Where

    @property
    def emulator(self) -> Emulator:
        """The service of the session, which all tests share."""
        return self._host.emulator

    @property
    def base_url(self) -> str:
        """Where clients send to."""
        return self.emulator.base_url

    @property
    def url(self) -> str:
        """The page that shows the inboxes, while the session lasts."""
        return self.emulator.url

    # What was accepted

    @property
    def pushes(self) -> Sequence[Push]:
        """The accepted push requests, oldest first."""
        return self._inbox.pushes

    @property
    def campaigns(self) -> Sequence[Campaign]:
        """The accepted campaigns, oldest first."""
        return self._inbox.campaigns

    def accepted(self, user_id: str) -> int:
        """How many pushes to this user were accepted."""
        return self._inbox.accepted(user_id)

    def users(self) -> Mapping[str, int]:
        """Every user with an accepted push, and how many."""
        return self._inbox.users()

    def duplicates(self) -> Mapping[str, int]:
        """Return the users to whom the same push was accepted more than once, and how often at most."""
        return self._inbox.duplicates()

    def sent_to(self, user_id: str) -> list[SentPush]:
        """What this user got, pushes and campaigns, oldest first."""
        return [
            sent_push(each.id, each.time, each.body, campaign=each.campaign, fields=each.fields)
            for each in self._inbox.delivered(user_id)
        ]

    def summary(self) -> str:
        """What the service got, as failures show it."""
        return self._summarize(None)

    def pending_failure(self) -> str | None:
        """Return why the test must fail though it passed: a fault of it never acted."""
        return next((armed.pending_failure for armed in self._armed if armed.pending_failure), None)

    # Expectations

    def assert_sent(
        self,
        user_id: str | None = None,
        *,
        title: str | None = None,
        body: str | None = None,
        language: str | None = None,
        count: int | None = None,
    ) -> list[SentPush]:
        """Fail unless such a push was accepted, to this user or to anybody; ``count`` of them where that is given.

        ``title`` and ``body`` are compared whole, with the placeholders filled, in any language or in this one. Returns
        them, oldest first.
        """
        __tracebackhide__ = True
        candidates = self._all_sent(_line(None, "")) if user_id is None else self.sent_to(user_id)
        wanted = {"title": title, "body": body}
        found = [each for each in candidates if _matches(each, wanted, language)]
        if len(found) != count if count is not None else not found:
            which = "" if user_id is None else f" to {quoted(user_id)}"
            texts = {part: text for part, text in wanted.items() if text is not None}
            parts = " and ".join(f"the {part} {quoted(text)}" for part, text in texts.items())
            which += f" with {parts}{f' in {language}' if language else ''}" if texts else ""
            self._fail(
                f"Expected {'a push' if count is None else plural(count, 'push')}{which}, got {len(found) or 'none'}.",
                *(f"  {part}: {show_texts(getattr(each, part))}" for each in candidates[-5:] for part in texts),
            )
        return found

    def assert_nothing_sent(self, user_id: str | None = None) -> None:
        """Fail if any push or campaign was accepted, or any push to this user."""
        __tracebackhide__ = True
        found = self._all_sent(_line(None, "")) if user_id is None else self.sent_to(user_id)
        if found:
            what = "push or campaign" if user_id is None else f"push to {quoted(user_id)}"
            self._fail(f"Expected no {what}, got {len(found):,}.")

    def assert_no_duplicates(self) -> None:
        """Fail if any user got the same push more than once: equal in its message and its custom fields."""
        __tracebackhide__ = True
        if found := self.duplicates():
            self._fail(f"{plural(len(found), 'user')} got the same push more than once:", show_users(found))

    # Waiting

    def wait_for(
        self,
        user_id: str | None = None,
        *,
        search: str = "",
        count: int = 1,
        condition: Callable[[], object] | None = None,
        timeout: float = 5.0,
    ) -> list[SentPush]:
        """Wait until ``count`` requests came: to this user, and found by this search line of the inbox page.

        Only accepted ones count, unless the search says ``is:refused`` or ``is:failed``. With a ``condition``, that is
        called whenever something changed, until it is true. Returns what of it was accepted; fails after ``timeout``
        seconds. It holds up this thread, and an event loop that runs in it: there use `until`.
        """
        __tracebackhide__ = True
        line = _line(user_id, search)
        try:
            for change in self._changes(line, count, condition, timeout):
                change.result()
        except AssertionError as error:
            if _in_loop():
                error.add_note(_BLOCKS)
            raise
        return self._all_sent(line)

    async def until(
        self,
        user_id: str | None = None,
        *,
        search: str = "",
        count: int = 1,
        condition: Callable[[], object] | None = None,
        timeout: float = 5.0,
    ) -> list[SentPush]:
        """The same as `wait_for`, to be awaited: the event loop goes on."""
        __tracebackhide__ = True
        line = _line(user_id, search)
        for change in self._changes(line, count, condition, timeout):
            await asyncio.wrap_future(change)
        return self._all_sent(line)

    # What happens

    def fault(self, *faults: Fault, required: bool = True, seed: int = 0) -> FaultContext:
        """``with push.fault(Fault.status(503, first=2)):`` has the service fail so; tried before those that are there.

        A fault that never fired fails the test, at the end of the ``with`` or, where that raised, of the test; unless
        ``required`` is off.
        """
        if not faults:
            raise ValueError("which fault? push.fault(Fault.status(503)), or push.faults('flaky')")
        return self._arm(faults, "each" if required else "none", seed)

    def faults(self, name: str, *, required: bool = True, seed: int = 0) -> FaultContext:
        """The same with a preset: flaky, ratelimited, brownout, outage, poison-user. One of its faults has to fire."""
        return self._arm(preset(name).faults, "any" if required else "none", seed)

    def _arm(self, faults: Sequence[Fault], needed: Literal["each", "any", "none"], seed: int) -> FaultContext:
        armed = FaultContext(self._inbox, faults, summarize=self._summarize, needed=needed, seed=seed)
        self._armed.append(armed)
        return armed

    @property
    def limits(self) -> ServiceLimits:
        """What the service takes with this test's key; set it at any time."""
        return self._inbox.limits

    @limits.setter
    def limits(self, limits: ServiceLimits) -> None:
        self._inbox.limits = limits

    def advance(self, seconds: float) -> None:
        """Set the service's clock forward, until the end of the test: campaigns start, pushes expire."""
        self._do(lambda: self.emulator.advance(seconds))
        self._ahead += seconds

    def _do(self, work: Callable[[], None]) -> None:
        """Call a function in the emulator's thread."""

        async def done() -> None:
            work()

        self._host.submit(done()).result()

    def _all_sent(self, line: str) -> list[SentPush]:
        found = {request.id for request in self._inbox.requests(line)}
        pushes = [sent_push(each.id, each.time, each.body) for each in self.pushes]
        campaigns = [sent_push(each.id, each.time, each.body, campaign=each.uuid) for each in self.campaigns]
        return sorted((each for each in pushes + campaigns if each.id in found), key=lambda each: each.id)

    def _changes(
        self, line: str, count: int, condition: Callable[[], object] | None, timeout: float
    ) -> Iterator[Future[None]]:
        """Yield the next change of the inbox to wait for, until the requests or the condition are there."""
        __tracebackhide__ = True
        end = time.monotonic() + timeout
        while True:
            seen = self._inbox.changes
            found = len(self._inbox.requests(line)) if condition is None else 0
            if found >= count if condition is None else condition():
                return
            left = end - time.monotonic()
            if left <= 0:
                what = f"{plural(count, 'request')} that the search `{line}` finds, got {found or 'none'}"
                self._fail(f"Waited {timeout:g} s for {what if condition is None else 'a condition to come true'}.")
            yield self._host.submit(_within(left, self._inbox.changed(seen)))

    def _fail(self, *problem: str) -> None:
        __tracebackhide__ = True
        raise AssertionError("\n".join((*problem, "", self._summarize(None))))

    def _summarize(self, requests: Sequence[RequestSummary] | None) -> str:
        """Return the text of these requests, or of all, for a failure."""
        self.has_shown_summary = True
        got = self._inbox.requests()
        elsewhere = self.emulator.requests - self._before - len(got)
        return summary(got if requests is None else requests, elsewhere=max(0, elsewhere))


def _in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def _within(seconds: float, work: Any) -> None:
    """Await, but no longer than so many seconds."""
    try:
        async with asyncio.timeout(seconds):
            await work
    except TimeoutError:
        pass


def _line(user_id: str | None, search: str) -> str:
    """Return the search line that finds these requests."""
    terms = [search] if search else []
    if user_id is not None:
        escaped = user_id.replace("\\", "\\\\").replace('"', '\\"')
        terms.append(f'user:"{escaped}"')
    if not parse(search).names_fate:
        terms.append("is:accepted")
    return " ".join(terms)


def _matches(push: SentPush, wanted: Mapping[str, str | None], language: str | None) -> bool:
    """Return True if the push has each wanted text, in this language if one is named."""
    for part, text in wanted.items():
        texts = getattr(push, part)
        if text is not None and text not in (texts.values() if language is None else [texts.get(language)]):
            return False
    return True


set_public_module(__name__, "pushsdk.testing")
