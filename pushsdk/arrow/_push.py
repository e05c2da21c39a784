"""``push_batches``: a client in its own thread; the caller's thread reads batches and yields outcomes."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, Unpack

import pyarrow as pa

from pushsdk._core.damage import warn_of_damage
from pushsdk._core.hints import check_options
from pushsdk._core.kinds import check, must_be
from pushsdk._core.models import AnyMessage
from pushsdk._core.policy import warn_of_unused
from pushsdk._core.secret import seal_options, sealed
from pushsdk._core.stop_policy import StopPolicy
from pushsdk._io.credentials import KeySource
from pushsdk._runs.claim_log import ClaimLog
from pushsdk._runs.planner import next_block
from pushsdk.arrow._chunks import ChunkEncoder
from pushsdk.arrow._dispatcher import PlanSender
from pushsdk.claims.store import ClaimStore, Store
from pushsdk.client import AsyncPushClient
from pushsdk.options import SendingOptions
from pushsdk.sync.caller_thread import in_blocks
from pushsdk.sync.loop_thread import LoopThread, ThreadCall

# The steps of reading, AHEAD chunks in total: slow ``batches`` are noticed at their first chunk.
STEPS = (1, 3, 4, 8)
# Seconds for the requests in flight when the generator is closed.
DRAIN = 30.0


def push_batches(
    batches: Iterable[pa.RecordBatch],
    message: AnyMessage,
    *,
    run: str,
    claims: Callable[[], ClaimStore],
    # Content
    custom_fields: Mapping[str, Any] | None = None,
    personal: Literal["placeholders", "custom_fields"] | None = None,
    # The client
    base_url: str | None = None,
    api_key: str | KeySource | None = None,
    # When to give up
    stop_policy: StopPolicy | None = None,
    **options: Unpack[SendingOptions],
) -> Iterator[pa.RecordBatch]:
    """Push each chunk in a frozen plan once, however many processes send it, and yield the outcome for every user.

    ``batches`` has the ``plan_schema`` columns, a row for each chunk: its ``chunk_id``, and at most
    ``batching.max_users`` distinct ``user_ids``. The yielded batches have the ``outcome_schema`` columns, a row for
    each user, in no particular order.

    The users in a request are claimed under ``run`` and the ``chunk_id`` before its first byte leaves, and settled
    afterwards. A process that gets the same plan sends only to users without a claim. Users that were not sent to, or
    rejected for the moment, are retried until ``stop_policy`` stops the sending; then they are NOT_SENT, and the next
    call sends to them. Rejected users stay rejected.

    With ``personal`` every user has a separate request and claim: the column ``fields`` fills the ``"placeholders"`` of
    title, subtitle and body, or is added to ``custom_fields`` as the request's ``"custom_fields"``.

    ``claims`` makes the claim store in the client's thread; the store is closed at the end. Claims expire: send a plan
    within half of their ``claim_ttl``. When the generator is closed, requests in flight get 30 s to complete. At its
    end, a warning counts the damaged ids.

    Raises ConfigurationError or ValidationError at once if an argument is wrong. While iterating, raises
    ValidationError for a row that can't be sent, ClaimStoreError if the store fails, and the errors from ``batches``:
    each after the requests in flight have completed, were settled and yielded. Call again with the same plan and run.
    """
    base_url, api_key = sealed(base_url), sealed(api_key)
    seal_options(options)
    check_options("push_batches", options, SendingOptions.__optional_keys__)
    if not callable(claims):
        raise must_be("claims", "a callable, for example lambda: RedisClaims(url)", claims)
    check("stop_policy", stop_policy, StopPolicy | None)
    client = AsyncPushClient(base_url, api_key, session=None, **options)
    settings = client._lifetime.settings
    warn_of_unused(client._options.policy)
    encoder = ChunkEncoder(
        message,
        custom_fields,
        personal,
        run=run,
        base_url=settings.base_url,
        max_users=settings.batching.max_users,
    )
    return _outcomes(client, claims, encoder, stop_policy, batches)


def _outcomes(
    client: AsyncPushClient,
    claims: Callable[[], ClaimStore],
    encoder: ChunkEncoder,
    stop_policy: StopPolicy | None,
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Yield the outcomes. Nothing is opened before the first is asked for."""
    source = encoder.chunks(batches)
    chunks = in_blocks(lambda: next_block(source, STEPS))
    # Set in the loop's thread, by ``send``.
    sender: PlanSender

    async def send() -> None:
        nonlocal sender
        store = claims()
        check("claims()", store, Store)
        thread.closing_last.push_async_callback(store.aclose)
        engine = client._lifetime.enter()
        sender = PlanSender(
            engine,
            client._options,
            client._credentials,
            log=ClaimLog(store, engine.work),
            stop_policy=stop_policy,
            varied=encoder.personal is not None,
            outcomes=call.callbacks,
        )
        await sender.run(chunks)

    call = ThreadCall(send)
    thread = LoopThread(client.aclose)
    try:
        thread.start()
        thread.submit(call)
        for callback in thread.callbacks_of(call):
            batch = callback()
            with contextlib.suppress(RuntimeError):  # the loop has ended
                thread.loop.call_soon_threadsafe(sender.wake)
            if batch is not None:
                yield batch
        warn_of_damage(encoder.damages)
        if call.error is not None:
            raise call.error
    finally:
        call.error = None
        if thread.has_started and not thread.is_inherited:
            # If the generator was dropped, this may be the client's thread itself: a thread can't wait for its own end.
            (thread.close_soon if thread.is_current else thread.close)(DRAIN)
