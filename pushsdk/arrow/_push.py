"""``push_batches``: a client in its own thread; the caller's thread reads batches and yields outcomes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, Unpack

import pyarrow as pa

from pushsdk._core.address import redacted
from pushsdk._core.errors import ConfigurationError
from pushsdk._core.models import MobilePush
from pushsdk._core.results import DrainReport
from pushsdk._core.stop_policy import StopPolicy
from pushsdk._io.credentials import KeySource
from pushsdk._runs.claim_log import ClaimLog
from pushsdk.arrow._chunks import ChunkEncoder
from pushsdk.arrow._dispatcher import AHEAD, PlanSender
from pushsdk.claims.store import ClaimStore
from pushsdk.client import AsyncPushClient
from pushsdk.options import SendingOptions
from pushsdk.sync.loop_thread import LoopThread, Reader, ThreadCall

# Seconds for the requests in flight when the generator is closed.
DRAIN = 30.0


def push_batches(
    batches: Iterable[pa.RecordBatch],
    message: MobilePush | Mapping[str, Any],
    *,
    run: str,
    claims: Callable[[], ClaimStore],
    # What is sent
    custom_fields: Mapping[str, Any] | None = None,
    personal: Literal["placeholders", "custom_fields"] | None = None,
    # The client
    base_url: str | None = None,
    api_key: str | KeySource | None = None,
    # When to give up
    stop_policy: StopPolicy | None = None,
    **options: Unpack[SendingOptions],
) -> Iterator[pa.RecordBatch]:
    """Push each chunk of a frozen plan once, however many processes send it, and yield the outcome of every user.

    ``batches`` has the columns of ``plan_schema``, a row for each chunk: its ``chunk_id``, and at most
    ``batching.max_users`` distinct ``user_ids``. The yielded batches have the columns of ``outcome_schema``, a row for
    each user, in no particular order.

    The users of a request are claimed in the store under ``run`` and the ``chunk_id``, after the connection is open and
    before the first byte leaves, and settled afterwards. A process that gets the same plan, after a crash or at the
    same time, sends only to users without a claim; users with a claim that was never settled are UNKNOWN and skipped.
    Users that were not sent to, or rejected for the moment, are retried without a limit until ``stop_policy`` stops
    the sending; then they are NOT_SENT, unless an earlier call recorded another outcome. Rejected users (400, 404, 410,
    ...) stay rejected: send them in another run. A 401, 403, 413 or redirect is not about users: they are NOT_SENT, and
    the next call sends to them.

    With ``personal`` every user has a separate request and claim: the column ``fields`` fills the ``"placeholders"`` of
    title, subtitle and body, or is added to ``custom_fields`` as the request's ``"custom_fields"``.

    Claims expire: don't send a plan that is older than half of their ``claim_ttl``, and plan no user twice.

    ``claims`` makes the claim store in the client's thread; the store is closed at the end. The other arguments are
    those of AsyncPushClient. When the generator is closed or dropped, requests in flight get 30 s to complete.

    Raises ConfigurationError or ValidationError at once if an argument is wrong. While iterating, raises
    ValidationError for a row that can't be sent, ClaimStoreError if the store fails, and the errors of ``batches``:
    each after the requests in flight have completed and were settled and yielded. Their ``outcome`` is about one chunk;
    the store knows the others: call again with the same plan and run.
    """
    base_url, api_key, options["proxy"] = redacted(base_url), redacted(api_key), redacted(options.get("proxy"))
    if not callable(claims):
        got = type(claims).__name__
        raise ConfigurationError(f"claims must be a callable, for example lambda: DirectoryClaims(path); got {got}")
    if stop_policy is not None and not isinstance(stop_policy, StopPolicy):
        got = type(stop_policy).__name__
        raise ConfigurationError(f"stop_policy must be a StopPolicy, for example StopPolicy(rejected=0.1); got {got}")
    client = AsyncPushClient(base_url, api_key, session=None, **options)
    settings = client._engine.settings
    base_url, max_users = settings.base_url, settings.batching.max_users
    encoder = ChunkEncoder(message, custom_fields, personal, run=run, base_url=base_url, max_users=max_users)
    return _Push(client, claims, encoder, stop_policy).batches(batches)


class _Push:
    """One call of ``push_batches``."""

    def __init__(
        self,
        client: AsyncPushClient,
        claims: Callable[[], ClaimStore],
        encoder: ChunkEncoder,
        stop_policy: StopPolicy | None,
    ) -> None:
        self._client = client
        self._claims = claims
        self._encoder = encoder
        self._stop_policy = stop_policy
        self._call = ThreadCall[None]()
        # Set in the loop's thread, by ``_send``.
        self._store: ClaimStore | None = None
        self._sender: PlanSender | None = None

    def batches(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the outcomes. Nothing is opened before the first is asked for."""
        call = self._call
        chunks = Reader(self._encoder.chunks(batches), call.callbacks.put, block=AHEAD // 2, step=1)
        call.work = lambda: self._send(chunks)
        thread = LoopThread(self._close)
        try:
            thread.start()
            thread.submit(call)
            for callback in thread.callbacks_of(call):
                batch = callback()
                if self._sender is not None and self._sender.is_waiting:
                    with contextlib.suppress(RuntimeError):  # the loop has ended
                        thread.loop.call_soon_threadsafe(self._sender.wake)
                if batch is not None:
                    yield batch
            if call.error is not None:
                raise call.error
        finally:
            call.error = None
            _end(thread)

    # -- in the loop ----------------------------------------------------------------------------------------------

    async def _send(self, chunks: Reader) -> None:
        client = self._client
        store = self._claims()
        if not isinstance(store, ClaimStore):
            got = type(store).__name__
            raise ConfigurationError(
                f"claims() must return a claim store, for example DirectoryClaims(path); got {got}"
            )
        self._store = store
        options = client._options
        self._sender = PlanSender(
            client._engine,
            options.policy,
            options.timeout,
            log=ClaimLog(store, client._engine),
            stop_policy=self._stop_policy,
            varied=self._encoder.personal is not None,
            outcomes=self._call.callbacks,
        )
        await self._sender.run(chunks)

    async def _close(self, drain: float) -> DrainReport:
        try:
            return await self._client.aclose(drain)
        finally:
            if self._store is not None:
                await self._store.aclose()


def _end(thread: LoopThread) -> None:
    """End the thread, and wait for its end unless this is the thread itself."""
    if thread.is_inherited or not thread.has_started:
        return
    if thread.is_current:
        # The generator was dropped, and collected in the client's thread.
        thread.close_soon(DRAIN)
    else:
        thread.close(DRAIN)
