"""The Api-Key: a string, or a callable that is called for each attempt."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from pushsdk._core.address import HeaderSecret, check_key
from pushsdk._core.checks import takes
from pushsdk._core.errors import ConfigurationError, must_be
from pushsdk._core.outcome import Failure
from pushsdk._core.words import trace_of

KeySource = Callable[[], str | Awaitable[str]]


class NoKeyError(Exception):
    """The callable returned no usable key. ``args`` are the failure, words for it, and the exception."""


class Credentials:
    """Provides the key as a header value, which is never shown and never pickled."""

    def __init__(self, key: object, name: str = "api_key") -> None:
        #: The key if it is a string, else None. Checked here, so that an invalid key fails in the constructor.
        self.fixed = None if callable(key) else check_key(key, name)
        if callable(key) and not takes(key):
            raise must_be(name, "a str, or a callable without arguments that returns one", key)
        self._source: Any = key if callable(key) else None

    async def ask(self) -> HeaderSecret:
        """Call the callable for the current key. Raises NoKeyError if it raises or returns no valid key."""
        task = asyncio.current_task()
        cancelling = task.cancelling() if task is not None else 0
        try:
            key = self._source()
            return check_key(await key if inspect.isawaitable(key) else key)
        except ConfigurationError as error:
            raise NoKeyError(Failure.NO_KEY, str(error), error.with_traceback(None)) from None
        except asyncio.CancelledError:
            if task is None or task.cancelling() > cancelling:
                raise
            # This task was not cancelled: the callable awaited something that was.
            raise NoKeyError(Failure.CREDENTIALS, "CancelledError", None) from None
        except Exception as error:  # noqa: BLE001 - whatever a caller's callable raises means: no key
            # What Python itself raises, such as a TypeError, is raised again by every retry.
            is_bug = type(error).__module__ == "builtins" and not isinstance(error, OSError)
            failure = Failure.BUG if is_bug else Failure.CREDENTIALS
            raise NoKeyError(failure, trace_of(error), error) from None
