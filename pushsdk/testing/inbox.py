"""What a test says to the service and asks of it: the ``push`` fixture."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Literal

from pushsdk.emulator import Campaign, Emulator, Fault, Push, ServiceLimits
from pushsdk.emulator.presets import preset
from pushsdk.emulator.records import Summary
from pushsdk.emulator.search import parse
from pushsdk.testing.armed import ArmedFaults
from pushsdk.testing.hosting import Host
from pushsdk.testing.sent import SentPush, sent_push
from pushsdk.testing.words import plural, quoted, summary, texts_told, users_told

__all__ = ["PushInbox"]


class PushInbox:
    """The push service as one test sees it: an address and a key of its own, what was accepted with them, and faults.

    All of it can be used in sync and async tests alike: the service is in another thread.
    """

    def __init__(self, host: Host, *, api_key: str, label: str) -> None:
        self.api_key = api_key
        self._host = host
        self._inbox = host.emulator.inbox(api_key)
        self._inbox.label(label)
        self._ahead = 0.0  # seconds that this test set the clock forward
        self._before = host.emulator.requests  # of all tests that were before
        self._armed: list[ArmedFaults] = []  # all that this test asked for
        self.was_told: bool = False  # whether a failure has shown what the service got

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
        return self._told(None)

    def unsaid(self) -> str | None:
        """What is wrong with this test though it passed: faults that never acted, and no error said so."""
        return next((armed.unsaid for armed in self._armed if armed.unsaid), None)

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
            whom = "" if user_id is None else f" to {quoted(user_id)}"
            texts = {part: text for part, text in wanted.items() if text is not None}
            said = " and ".join(f"the {part} {quoted(text)}" for part, text in texts.items())
            which = f"{whom} with {said}{f' in {language}' if language else ''}" if texts else whom
            self._fail(
                f"Expected {'a push' if count is None else plural(count, 'push')}{which}, got {len(found) or 'none'}.",
                *(f"  {part}: {texts_told(getattr(each, part))}" for each in candidates[-5:] for part in texts),
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
            self._fail(f"{plural(len(found), 'user')} got the same push more than once:", users_told(found))

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
                error.add_note(_HELD_UP)
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

    def fault(self, *faults: Fault, required: bool = True, seed: int = 0) -> ArmedFaults:
        """``with push.fault(Fault.status(503, first=2)):`` has the service fail so; tried before those that are there.

        A fault that never fired fails the test, at the end of the ``with`` or, where that raised, of the test; unless
        ``required`` is off.
        """
        if not faults:
            raise ValueError("which fault? push.fault(Fault.status(503)), or push.faults('flaky')")
        return self._arm(faults, "each" if required else "none", seed)

    def faults(self, name: str, *, required: bool = True, seed: int = 0) -> ArmedFaults:
        """The same with a preset: flaky, ratelimited, brownout, outage, poison-user. One of its faults has to fire."""
        return self._arm(preset(name).faults, "any" if required else "none", seed)

    def _arm(self, faults: Sequence[Fault], needed: Literal["each", "any", "none"], seed: int) -> ArmedFaults:
        armed = ArmedFaults(self._inbox, faults, told=self._told, needed=needed, seed=seed)
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
        """In the thread of the service."""

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
        """The next change of the inbox to wait for, again and again, until there is what is waited for."""
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
        raise AssertionError("\n".join((*problem, "", self._told(None))))

    def _told(self, requests: Sequence[Summary] | None) -> str:
        """What the service got, these or all: for a failure, which then needs not show it once more."""
        self.was_told = True
        got = self._inbox.requests()
        elsewhere = self.emulator.requests - self._before - len(got)
        return summary(got if requests is None else requests, elsewhere=max(0, elsewhere))


_HELD_UP = (
    "wait_for() held up the event loop that runs in this thread, and whatever would send in it:"
    " use `await push.until(...)`."
)


def _in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def _within(seconds: float, work: Any) -> None:
    """Wait for it, but no longer than that."""
    try:
        async with asyncio.timeout(seconds):
            await work
    except TimeoutError:
        pass


def _line(user_id: str | None, search: str) -> str:
    """The search line of what is waited for."""
    terms = [search] if search else []
    if user_id is not None:
        escaped = user_id.replace("\\", "\\\\").replace('"', '\\"')
        terms.append(f'user:"{escaped}"')
    if not parse(search).fates:
        terms.append("is:accepted")
    return " ".join(terms)


def _matches(push: SentPush, wanted: Mapping[str, str | None], language: str | None) -> bool:
    """Whether each text that is wanted is one of the push's, in this language where one is named."""
    for part, text in wanted.items():
        texts = getattr(push, part)
        if text is not None and text not in (texts.values() if language is None else [texts.get(language)]):
            return False
    return True
