"""Client views: ``with_options`` on both clients returns another client that shares its parts."""

from __future__ import annotations

from typing import Any, NoReturn, Self

from msgspec import UNSET, UnsetType

from pushsdk._core.policy import RetryPolicy, Seconds, Timeout
from pushsdk._core.results import ClientStats
from pushsdk._core.secret import sealed
from pushsdk._io.credentials import KeySource


class ClientViews:
    """Base class for the clients."""

    _lifetime: Any
    """The ``Lifetime``. Set by each constructor, last: an error's traceback may show the client before."""

    def __repr__(self) -> str:
        name = type(self).__name__
        if not hasattr(self, "_lifetime"):
            return f"{name}(not constructed)"
        return f"{name}({self._lifetime.settings.base_url!r}, closed={self.closed})"

    @property
    def closed(self) -> bool:
        """True once the client, or one of ``with_options``, was closed."""
        return bool(self._lifetime.closed)

    def stats(self) -> ClientStats:
        """Return the current counters. In a forked child, they begin at 0."""
        stats: ClientStats = self._lifetime.stats()
        return stats

    def with_options(
        self,
        *,
        timeout: Timeout | Seconds | None = None,
        retry: RetryPolicy | None = None,
        api_key: str | KeySource | UnsetType = UNSET,
        urgent: bool | None = None,
    ) -> Self:
        """Return a client with other options. Both share everything else, such as connections, limits and pauses.

        Both are closed together.

        Args:
            timeout: A Timeout, or the total in seconds.
            retry: A RetryPolicy.
            api_key: Another key, or a callable as for the constructor. None is refused: a tenant whose key is missing
                is not pushed to under another tenant's key.
            urgent: True lets sends go before all that wait, in slots and rates; they share no request with others.
                Pauses, deadlines and a full queue hold for them, too. Runs ignore it.

        Raises:
            ConfigurationError: An option is wrong.
        """
        api_key = sealed(api_key)
        client = object.__new__(type(self))
        client.__dict__ |= self.__dict__
        client._change(timeout=timeout, retry=retry, api_key=api_key, urgent=urgent)
        return client

    def _change(self, *, timeout: Any, retry: Any, api_key: Any, urgent: bool | None) -> None:
        """Set the options that were given. Defined by each client."""

    def __reduce__(self) -> NoReturn:
        raise TypeError("a client can't be pickled, as it holds connections and the Api-Key: make one in each process")
