"""The Api-Key: a string, or a callable that is asked for each call, and again for each attempt but the first."""

import asyncio
import inspect
import math
from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache, partial
from typing import Any, Self

import msgspec

from pushsdk._core.address import check_key
from pushsdk._core.errors import ConfigurationError
from pushsdk._core.kinds import must_be, takes
from pushsdk._core.outcome import Failure, Guarded
from pushsdk._core.policy import Timeout
from pushsdk._core.secret import Secret, sealed
from pushsdk._core.words import trace_of
from pushsdk._io.timers import DeadlineScope, TimerWheel

KeySource = Callable[[], str | Awaitable[str]]


class NoKey(Guarded, msgspec.Struct, frozen=True, eq=False):
    """The reason why a callable gave no key. Equal to no other, so calls without a key are never merged."""

    failure: Failure
    reason: str
    error: Exception | None


ApiKey = Secret | NoKey


class Credentials(Guarded, msgspec.Struct, frozen=True, eq=False):
    """A fixed key, or a callable's way to ask for one."""

    key: Secret | None = None
    ask: Callable[[], ApiKey | asyncio.Future[ApiKey]] | None = None

    @classmethod
    def of(cls, api_key: Any, name: str = "api_key") -> Self:
        """Raises ConfigurationError if the api_key is neither a key nor a callable."""
        api_key = sealed(api_key)
        if not callable(api_key):
            return cls(key=check_key(api_key, name))
        if not takes(api_key):
            raise must_be(name, "a str, or a callable without arguments that returns one", api_key)
        # A callable mostly returns a key that it has returned before. Kept here, the keys end with the client.
        return cls(ask=partial(_ask, api_key, lru_cache(16)(check_key)))


def _ask(source: KeySource, check: Callable[[Secret], Secret]) -> ApiKey | asyncio.Future[ApiKey]:
    """Call a callable. Return its answer, checked; if it is async, a future for the answer."""
    try:
        key: Any = sealed(source())
        if isinstance(key, Secret) or not inspect.isawaitable(key):
            return check(Secret.of(key))
        answer = asyncio.ensure_future(_answer(key, check))
        if inspect.iscoroutine(key):
            # A task that is cancelled before its first step never awaits it.
            answer.add_done_callback(lambda _: key.close())
        return answer
    except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - whatever a caller's callable raises: no key
        return _no_key(error)


async def _answer(key: Awaitable[str], check: Callable[[Secret], Secret]) -> ApiKey:
    # The result is not a plain str: in its debug mode asyncio logs a slow task's result.
    try:
        return check(Secret.of(await key))
    except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - as above
        return _no_key(error)


def _no_key(error: BaseException) -> NoKey:
    trace = trace_of(error)
    _forget_frames(error)
    if isinstance(error, ConfigurationError):
        return NoKey(Failure.NO_KEY, str(error), error)
    if not isinstance(error, Exception):
        # The task was not cancelled: the callable awaited something that was.
        return NoKey(Failure.KEY_FAILED, type(error).__name__, None)
    # An exception from Python itself, such as a TypeError, is raised again by every retry.
    is_bug = type(error).__module__ == "builtins" and not isinstance(error, OSError)
    return NoKey(Failure.KEY_BUG if is_bug else Failure.KEY_FAILED, trace, error)


def _forget_frames(error: BaseException | None) -> None:
    """Remove the tracebacks: frames refer to calls and to requests, which the cycle collector does not know.

    The callable's local variables may hold secrets, too.
    """
    if error is None or error.__traceback__ is None:
        return
    error.with_traceback(None)
    # What the caller handled meanwhile may be the context, and keeps its traceback. An exception may be frozen.
    BaseException.__setattr__(error, "__context__", None)
    parts = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    for cause in (error.__cause__, *parts):
        _forget_frames(cause)


async def rekey(request: Any, timers: TimerWheel, *, is_refused: bool = False) -> bool:
    """Ask each callable once, in its caller's context. Return True if the calls have one key, for an attempt.

    ``is_refused``: the last key was refused, and calls without a new key need no attempt. A ``BatchRequest`` whose
    calls have different keys ends.
    """
    old, asks = request.key, dict.fromkeys([unit.ask for unit in request.part.units])
    answers = [old if ask is None else ask() for ask in asks]
    keys = await keys_of(answers, timers, request.options.timeout, request.deadline)
    if is_refused:
        keys = [None if isinstance(key, NoKey) or key == old else key for key in keys]
    if len({*keys}) > 1:
        request.keys, request.failure = dict(zip(asks, keys, strict=True)), Failure.REKEYED
        return False
    request.key = keys[0] or old
    return keys[0] is not None


async def keys_of(answers: Sequence[Any], timers: TimerWheel, timeout: Timeout, deadline: float) -> list[Any]:
    """Return the keys from these answers, some perhaps futures, within the timeouts."""
    waits = [answer for answer in answers if asyncio.isfuture(answer)]
    if not waits:
        return list(answers)  # nearly always
    scope = DeadlineScope(timers, min(deadline, timers.loop.time() + (timeout.attempt or math.inf)))
    try:
        with scope:
            await asyncio.wait(waits)
    finally:
        for waiting in waits:
            waiting.cancel()  # does nothing if it has answered
    late = _late(scope.expired, timeout.named("attempt" if scope.deadline < deadline else "total"))
    keys = {waiting: _key_of(waiting, late) for waiting in waits}
    return list(map(keys.get, answers, answers))


def _key_of(waiting: Any, late: NoKey) -> Any:
    if not waiting.done() or waiting.cancelled():
        return late
    error = waiting.exception()  # the callable exits
    return waiting.result() if error is None else _no_key(error)


def _late(expired: Failure | None, named: str) -> NoKey:
    """Return why there is no key: the timeout with this name has passed, or the client has another reason."""
    if expired in (None, Failure.DEADLINE):
        return NoKey(Failure.KEY_FAILED, f"it did not return within the {named}", TimeoutError(named))
    return NoKey(expired, "", None)
