"""Keyword arguments for clients and runs, for ``Unpack``. Each key names its default."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

from pushsdk._core.events import Event
from pushsdk._core.kinds import Moment, Rule, UserIds
from pushsdk._core.policy import Batching, Limits, Rate, RetryPolicy, Seconds, TimeoutOrTotal
from pushsdk._core.stop_policy import StopPolicy
from pushsdk.claims.store import ClaimStore

if TYPE_CHECKING:
    from pushsdk._runs.pipeline import OnUnknown
    from pushsdk._runs.progress import Progress

Verifying = Annotated[
    ssl.SSLContext, Rule("a verifying context, for a private CA: ssl.create_default_context(cafile=...)")
]
__all__ = ["ClientOptions", "RunOptions", "SendingOptions"]


class SendingOptions(TypedDict, total=False):
    """The client options that can be sent to another process, for example to a Spark executor."""

    # Retries and time
    retry: RetryPolicy | None
    """The rules for retries after a failed attempt. Default: ``RetryPolicy.safe()``."""
    timeout: TimeoutOrTotal | None
    """A Timeout, or the total in seconds. Default: ``Timeout()``."""
    # What is sent at a time
    batching: Batching | None
    """The merging of concurrent sends into one request. Default: ``Batching()``."""
    limits: Limits | None
    """Bounds on requests in flight and on queued calls. Default: ``Limits()``."""
    rate: Rate | None
    """The most requests or users per second. Default: unlimited."""
    # Connections
    proxy: str | None
    """The URL of an HTTP proxy. Default: none; environment proxy variables are ignored."""
    headers: Mapping[str, str] | None
    """Headers added to every request."""
    allow_insecure: bool
    """Allow an http ``base_url`` that is not loopback. Default: False."""


class ClientOptions(SendingOptions, total=False):
    """The options for AsyncPushClient and PushClient."""

    # Connections
    ssl: Verifying | None
    """A context with your own certificates. It must verify. Default: the system's certificates."""
    keepalive: Seconds
    """Seconds for which an idle connection is kept: keep it half a second below the server's. Shortened if the server
    announces less (``Keep-Alive: timeout=N``), or closes a connection with a request in flight. Default: 1.5."""
    # Who gets pushes
    only_users: UserIds | None
    """The only users that get pushes, for a staging system: everybody else is NOT_SENT. Default: all users."""
    # What you learn
    on_event: Callable[[Event], Any] | None
    """A callable that is called with each event."""
    show_answers: bool | None
    """Quote the service's response in error texts, though it may name users. Default: only if ``base_url`` is
    loopback, or if PUSHSDK_SHOW_ANSWERS is ``1``. The error attributes have the response in any case."""
    # Jobs that may run several times
    claims: ClaimStore | str | None
    """The claim store for ``send(..., idempotency_key=)``: a store, which AsyncPushClient never closes and PushClient
    does; or its location, and the client opens and closes it: ``sqlite:PATH``, ``redis://HOST``,
    ``postgresql://HOST/DATABASE``, ``s3://BUCKET/PREFIX`` or ``memory:``."""


class RunOptions(TypedDict, total=False):
    """The options for a run: ``broadcast``, ``send_each`` and ``resume``."""

    on_unknown: OnUnknown
    """``"skip"`` (default) skips users with an unknown outcome; ``"resend"`` may push to them twice."""
    stop_policy: StopPolicy | None
    """When to stop the run. Default: ``StopPolicy()``."""
    on_progress: Callable[[Progress], object] | None
    """A callable that is called twice a second."""
    not_after: Moment | None
    """A datetime with a zone: no request is begun later, and its users stay NOT_SENT. The first call's
    is kept in the run; an earlier one of a resume holds for that call. Default: no bound."""
    limit: int | None
    """Pause the run after this many users. Default: no limit."""
    durable: bool
    """Sync each claim to the disk, so that claims survive a power failure. Default: False."""
