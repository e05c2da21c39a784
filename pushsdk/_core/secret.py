"""Secrets: texts such as the Api-Key, as an object that tracebacks, logs and crash reporters can't read."""

from collections.abc import Callable
from hmac import compare_digest
from typing import Any, NoReturn

import msgspec

_TEXTS = (str, bytes, bytearray, list, tuple, dict)


class _Hidden:
    """A value in a closure: crash reporters walk ``__dict__`` and ``__slots__``, but not closures."""

    __slots__ = ("reveal",)

    def __init__(self, value: Any) -> None:
        self.reveal: Callable[[], Any] = lambda: value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Hidden) and compare_digest(self._bytes(), other._bytes())

    def __hash__(self) -> int:
        return hash(self._bytes())

    def _bytes(self) -> bytes:
        return str(self.reveal()).encode(errors="surrogatepass")


# A Struct keeps its hash, so a send looks its batch up by the Api-Key without a Python call.
class Secret(msgspec.Struct, frozen=True, cache_hash=True):
    """A text that is not a str, so that code which collects texts does not collect it. Equal if the texts are."""

    _hidden: _Hidden

    @classmethod
    def of(cls, value: object) -> "Secret":
        """Return the value, most often a text, as a secret. A secret is returned unchanged."""
        return value if isinstance(value, Secret) else cls(_Hidden(value))

    def reveal(self) -> Any:
        """Return the value. Call this where the value is written, and keep it out of local variables."""
        return self._hidden.reveal()

    def __repr__(self) -> str:
        return "***"

    __copy__ = None

    def __reduce__(self) -> NoReturn:
        raise TypeError("an Api-Key is not pickled: give each process its own, by PUSHSDK_API_KEY or a callable")


def sealed(value: Any) -> Any:
    """Return a text, or plain data that may hold one, as a Secret. Other values, such as a callable, are unchanged."""
    return Secret.of(value) if isinstance(value, _TEXTS) else value
