"""The sans-IO core: no async, no clock, no randomness, no aiohttp, no tenacity, no logging.

Theory of operation
===================

From a call to its outcome:

call
    One ``send()``: its users and its deadline (``batching.Call``). ``arguments`` checks the input, ``wire`` encodes it.
    ``_io.backlog`` bounds the queue.
batch
    Calls with equal message, custom fields, options and Api-Key (``batching.Batch``). ``batching`` decides which calls
    may share a batch, and its states; it waits in ``_io.queue`` until a slot of ``_io.limiter`` is free, the rates of
    ``rate_limit`` allow a request, and ``attempt_times`` expects its response in time.
request
    One body for the service (``_io.request``). A batch becomes one request, or several if it is too large or was
    rejected: ``splitting`` decides, ``_io.batch_sender`` sends the parts. ``_io.pending`` settles the calls.
attempt
    One try of a request, with the method and path of ``operations``. ``_io.sender`` makes attempts under deadlines and
    the retry budget; ``policy`` decides on retries and delays, ``_io.retrying`` runs the loop. A stale connection is
    noticed by ``_io.fast_post.HttpConnection`` and replaced within the attempt, by ``_io.sender``.
evidence
    Facts of one attempt: bytes written, status, failure. ``_io.fast_post`` and ``_io.session_post`` record them, and
    nothing changes them afterwards.
outcome
    ACCEPTED, REJECTED, NOT_SENT or UNKNOWN. ``TABLE`` in ``judging`` says which status or failure means what. The
    attempts' outcomes join to the verdict on the request: ACCEPTED, else UNKNOWN, else REJECTED, else NOT_SENT.
    ``error_mapping`` turns a verdict into the exception, which ``error_texts`` words when it is read; ``results`` holds
    the values that calls return.

For work that survives the process:

run
    A plan with users, and a journal with their outcomes (``_runs``). ``stop_policy`` decides when a run stops by
    itself; ``_runs.pipeline`` sends the rest.
chunk
    One planned request's users. ``_runs.planner`` makes chunks, ``_runs.sender`` sends them; ``decisions`` chooses
    the next step after each verdict: settle, retry, split, resend, leave or stop.
user state
    PENDING, CLAIMED, ACCEPTED, REJECTED or UNKNOWN, for each user in a run or a keyed call (``user_states``).
    ``decisions`` maps a verdict to the state.
claim
    A durable record that a request is about to be sent: the users become CLAIMED before the first byte, and are
    settled after the attempt. If a chunk's process was killed, its users stay CLAIMED, which means UNKNOWN for a
    resume. ``_runs.log`` keeps claims in a run file, ``_runs.claim_log`` in a claim store; ``idempotency`` decides
    what a stored claim means for the next call.

By default, a request is retried only if it provably had no effect.
"""
