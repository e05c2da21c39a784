"""The keyword arguments that several functions share: of a client, and of a run. Used with ``Unpack``.

A name that is left out has the default that is given here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypedDict

from pushsdk._core.events import Event
from pushsdk._core.policy import Batching, Limits, Rate, RetryPolicy, Timeout
from pushsdk._core.stop_policy import StopPolicy
from pushsdk._runs.options import OnUnknown
from pushsdk._runs.progress import Progress
from pushsdk.claims.store import ClaimStore

if TYPE_CHECKING:
    import ssl as ssl_module

__all__ = ["ClientOptions", "RunOptions", "SendingOptions"]


class SendingOptions(TypedDict, total=False):
    """Options of a client that travel to another process, as to an executor of Spark."""

    retry: RetryPolicy | None
    """What is repeated after a failed attempt. Default: ``RetryPolicy.safe()``."""
    timeout: Timeout | float | None
    """A Timeout, or the total in seconds. Default: ``Timeout()``."""
    batching: Batching | None
    """How concurrent sends are merged into one request. Default: ``Batching()``."""
    limits: Limits | None
    """How much one client holds at a time. Default: ``Limits()``."""
    rate: Rate | None
    """Caps on what is sent per second. Default: no cap."""
    proxy: str | None
    """The URL of an HTTP proxy. Default: none; the environment's is not used."""
    headers: Mapping[str, str] | None
    """Headers of every request, beside the client's own."""
    allow_insecure: bool
    """Take a plain http ``base_url`` that is not loopback. Default: False."""


class ClientOptions(SendingOptions, total=False):
    """Options of a client, but for an injected session, which belongs to one event loop."""

    ssl: ssl_module.SSLContext | None
    """A context with your own certificates. It has to verify. Default: the system's."""
    keepalive: float
    """Seconds for which an idle connection is kept; keep it below the server's. Default: 4.0."""
    on_event: Callable[[Event], Any] | None
    """A callable that is called with each event."""
    claims: ClaimStore | None
    """The claim store of ``send(..., idempotency_key=)``."""


class RunOptions(TypedDict, total=False):
    """Options of a run: of ``broadcast``, ``send_each`` and ``resume``."""

    on_unknown: OnUnknown
    """``"skip"`` (default) leaves users with an unknown outcome alone; ``"resend"`` may push to them twice."""
    stop_policy: StopPolicy | None
    """When to stop the run. Default: ``StopPolicy()``."""
    on_progress: Callable[[Progress], object] | None
    """A callable that is called twice a second."""
    limit: int | None
    """Pause the run after this many users. Default: no limit."""
    durable: bool
    """Sync each claim to the disk, to survive a loss of power. Default: False."""
