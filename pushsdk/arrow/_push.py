"""``push_batches``: a client and its loop in a thread of their own, and the thread that reads and hands out."""

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

__all__ = ["push_batches"]

# Seconds for what is on the wire when nobody wants the rest any more.
DRAIN = 30.0


def push_batches(
    batches: Iterable[pa.RecordBatch],
    message: MobilePush | Mapping[str, Any],
    *,
    run: str,
    claims: Callable[[], ClaimStore],
    # What is sent along
    custom_fields: Mapping[str, Any] | None = None,
    personal: Literal["placeholders", "custom_fields"] | None = None,
    # The client
    base_url: str | None = None,
    api_key: str | KeySource | None = None,
    # When to give up
    stop_policy: StopPolicy | None = None,
    **options: Unpack[SendingOptions],
) -> Iterator[pa.RecordBatch]:
    """Push the chunks of a frozen plan, each once whoever sends it, and yield what became of every user.

    ``batches`` has the columns of ``plan_schema``, a row for each chunk: its ``chunk_id``, and at most
    ``batching.max_users`` distinct ``user_ids``. What comes out has the columns of ``outcome_schema``, a row for each
    user, in no particular order.

    The users of a request are claimed in the store after its connection is open and before its first byte leaves,
    under ``run`` and the ``chunk_id``, and settled after:
    a process that takes the same plan up, after a crash or at the same time, sends to those only whom no other has
    sent to. Users that are claimed and not settled are UNKNOWN: skipped. What was not sent, or refused for the moment,
    is
    retried as long as it takes; ``stop_policy`` says when to stop. The rest is NOT_SENT then, but for what is recorded
    of an earlier call. Users who were rejected (400, 404, 410, ...) stay so: give them to another run. A 401, 403, 413
    or
    redirect is not about users, and leaves them NOT_SENT: the next call sends to them.

    ``personal`` is what the column ``fields`` is for: to fill the ``"placeholders"`` of title, subtitle and body, or as
    the ``"custom_fields"`` of a user's request, over those given. Then every user has a separate request and claim,
    all of them in one entry for the chunk.

    Claims expire: never take a plan up that is older than half of their ``claim_ttl``, and plan no user twice.

    ``claims`` makes the claim store; it is called in the client's thread, and the store is closed at the end. The other
    arguments are AsyncPushClient's. All ends with the generator: closed or dropped, what is on the wire has 30 s.

    Raises ConfigurationError or ValidationError at once where an argument is wrong; while it yields, ValidationError
    for a row that can't be sent, ClaimStoreError where the store fails, and what ``batches`` raises: each after what
    was on its way has ended, was settled and yielded. Their outcome is that of one chunk; of the others the store
    knows: call again with the same plan and run.
    """
    base_url, api_key, options["proxy"] = redacted(base_url), redacted(api_key), redacted(options.get("proxy"))
    if not callable(claims):
        raise ConfigurationError("claims is a callable that makes a claim store, as lambda: DirectoryClaims(path)")
    if stop_policy is not None and not isinstance(stop_policy, StopPolicy):
        raise ConfigurationError("stop_policy is a StopPolicy, as StopPolicy(rejected=0.1)")
    client = AsyncPushClient(base_url, api_key, session=None, **options)
    settings = client._engine.settings
    recipe = ChunkEncoder(
        message,
        custom_fields,
        personal,
        run=run,
        base_url=settings.base_url,
        max_users=settings.batching.max_users,
    )
    return _Push(client, claims, recipe, stop_policy).batches(batches)


class _Push:
    """One call."""

    def __init__(
        self,
        client: AsyncPushClient,
        claims: Callable[[], ClaimStore],
        recipe: ChunkEncoder,
        stop_policy: StopPolicy | None,
    ) -> None:
        self._client = client
        self._claims = claims
        self._recipe = recipe
        self._brake = stop_policy
        self._call = ThreadCall()
        # Set in the loop's thread, by ``_work``.
        self._store: ClaimStore | None = None
        self._dispatcher: PlanSender | None = None

    def batches(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The outcomes; nothing is opened before the first is asked for."""
        call = self._call
        chunks = Reader(self._recipe.chunks(batches), call.callbacks.put, block=AHEAD // 2, step=1)
        call.work = lambda: self._work(chunks)
        thread = LoopThread(self._close)
        try:
            thread.start()
            thread.submit(call)
            for callback in thread.callbacks_of(call):
                batch = callback()
                self._make_room(thread)
                if batch is not None:
                    yield batch
            if call.error is not None:
                raise call.error
        finally:
            call.error = None
            _end(thread)

    def _make_room(self, thread: LoopThread) -> None:
        dispatcher = self._dispatcher
        if dispatcher is not None and dispatcher.waits:
            with contextlib.suppress(RuntimeError):  # the loop has come to its end
                thread.loop.call_soon_threadsafe(dispatcher.wake)

    # -- in the loop ----------------------------------------------------------------------------------------------

    async def _work(self, chunks: Reader) -> None:
        client = self._client
        store = self._claims()
        if not isinstance(store, ClaimStore):
            raise ConfigurationError("claims() made no claim store, as pushsdk.claims.DirectoryClaims(path)")
        self._store = store
        options = client._options
        self._dispatcher = PlanSender(
            client._engine,
            options.policy,
            options.timeout,
            log=ClaimLog(store, client._engine),
            stop_policy=self._brake,
            varied=self._recipe.personal is not None,
            box=self._call.callbacks,
        )
        await self._dispatcher.run(chunks)

    async def _close(self, drain: float) -> DrainReport:
        try:
            return await self._client.aclose(drain)
        finally:
            if self._store is not None:
                await self._store.aclose()


def _end(thread: LoopThread) -> None:
    """Have the thread end, and wait for that."""
    if thread.is_inherited or not thread.has_started:
        return
    if thread.is_current:
        # Dropped, and collected by the very thread that would have to be waited for.
        thread.close_soon(DRAIN)
    else:
        thread.close(DRAIN)
