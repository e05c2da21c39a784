"""The bugs that ``mutate`` plants, and the tests that must find each bug.

``old`` occurs in ``file`` exactly once. ``tests`` are paths for pytest, fastest to fail first.
"""

from __future__ import annotations

from typing import NamedTuple


class Mutant(NamedTuple):
    """A planted bug: ``old`` is replaced by ``new`` in ``file``, and ``tests`` must fail."""

    name: str
    file: str
    old: str
    new: str
    tests: str


CORE, IO, RUNS, READERS = "pushsdk/_core/", "pushsdk/_io/", "pushsdk/_runs/", "pushsdk/_audience/"
OTEL, T_OTEL, T_SAMPLING = "pushsdk/otel/", "tests/otel/test_spans.py", "tests/otel/test_sampling.py"
LOOP_THREAD, T_SYNC = "pushsdk/sync/loop_thread.py", "tests/sync/test_"
EMULATOR, T_EMULATOR = "pushsdk/emulator/", "tests/emulator/test_"
T_OUTCOME = "tests/core/test_outcome.py"
T_POLICY = "tests/core/test_policy.py"
T_ERRORS = "tests/core/test_errors.py"
T_SPLITTING = "tests/core/test_splitting.py"
T_CONCURRENCY = "tests/core/test_concurrency.py"
T_BRAKE = "tests/core/test_stop_policy.py"
T_BATCHING = "tests/core/test_batching.py"
T_ENDPOINT = "tests/core/test_address.py"
T_MODEL = "tests/model"
T_CALLS = "tests/io/test_coalescing.py tests/io tests/model"
T_REQUESTS = "tests/io/test_retrying.py tests/io tests/model"
T_KILL = "tests/runs/test_kill.py::test_a_small_run_survives_its_kills"
T_EDGES = "tests/runs/test_run_edges.py"
T_AUDIENCE = "tests/audience/test_audience.py"
T_DISTINCT = "tests/audience/test_distinct.py"
T_TABLES = "tests/audience/test_audience_tables.py"
T_JOURNAL = "tests/runs/test_journal_"
T_WIRE = "tests/io/test_transport.py tests/faults/test_matrix.py"

OUTCOME = [
    Mutant(
        "a 502 is a rejection",
        CORE + "outcome.py",
        'Rule("501", (501,), _REJECTED',
        'Rule("501", (501, 502), _REJECTED',
        T_OUTCOME,
    ),
    Mutant(
        "a 503 without Retry-After is retryable",
        CORE + "outcome.py",
        "return evidence.retry_after is not None",
        "return True",
        T_OUTCOME,
    ),
    Mutant(
        "the join prefers REJECTED over UNKNOWN",
        CORE + "outcome.py",
        "_JOIN = (_ACCEPTED, _UNKNOWN, _REJECTED)",
        "_JOIN = (_ACCEPTED, _REJECTED, _UNKNOWN)",
        T_OUTCOME,
    ),
    Mutant(
        "a 2xx counts as accepted although the request was not written completely",
        CORE + "outcome.py",
        "if outcome is _ACCEPTED and evidence.touched and not evidence.written:",
        "if False:",
        T_OUTCOME,
    ),
    Mutant(
        "a login page counts as a delivery",
        CORE + "outcome.py",
        'return evidence.body is not None and evidence.body.lstrip()[:1] in (b"{", b"[")',
        "return True",
        T_OUTCOME,
    ),
    Mutant(
        "a truncated body counts as an empty body",
        "pushsdk/_io/transport.py",
        """        if body:
            evidence.body = bytes(body[:limit])""",
        "        evidence.body = bytes(body[:limit])",
        "tests/io/test_transport.py",
    ),
    Mutant(
        "the fast path accepts a 204 to an incomplete request",
        CORE + "outcome.py",
        "if evidence.written and evidence.status == 204 and not statuses:",
        "if evidence.status == 204 and not statuses:",
        T_OUTCOME,
    ),
    Mutant(
        "a stray response counts as the response",
        CORE + "outcome.py",
        "status = None if _is_unsent(evidence) else evidence.status",
        "status = evidence.status",
        T_OUTCOME,
    ),
    Mutant(
        "a disconnect after the first byte is NOT_SENT",
        CORE + "outcome.py",
        "if evidence.started_writing:",
        "if evidence.started_writing and evidence.status is not None:",
        T_OUTCOME,
    ),
    Mutant(
        "any exception of a mock is NOT_SENT",
        CORE + "outcome.py",
        "(evidence.status is None and evidence.failure in PROVES_UNSENT)",
        "evidence.status is None",
        T_OUTCOME,
    ),
]

POLICY = [
    Mutant(
        "an UNKNOWN is retried by default",
        CORE + "policy.py",
        'return cls(unknown="raise", **options)',
        'return cls(unknown="retry", **options)',
        T_POLICY,
    ),
    Mutant(
        "an UNKNOWN is retried without a collapse id",
        CORE + "policy.py",
        '(self.unknown == "retry_if_collapsible" and collapsible)',
        'self.unknown == "retry_if_collapsible"',
        T_POLICY,
    ),
    Mutant(
        "the jitter is half",
        CORE + "policy.py",
        "jitter = draw * min(",
        "jitter = (0.5 + draw / 2) * min(",
        T_POLICY,
    ),
    Mutant(
        "Retry-After gets no jitter on top",
        CORE + "policy.py",
        "return (attempt.retry_after or 0.0) + jitter",
        "return max(attempt.retry_after or 0.0, jitter)",
        T_POLICY,
    ),
    Mutant(
        "a shorter pause shortens a longer pause",
        CORE + "rate_limit.py",
        "self.paused_until = max(self.paused_until, until)",
        "self.paused_until = until",
        "tests/core/test_rate_limit.py",
    ),
    Mutant(
        "a Retry-After in the past is negative",
        CORE + "rate_limit.py",
        "return max(0.0, when.timestamp() - wall_clock)",
        "return when.timestamp() - wall_clock",
        "tests/core/test_rate_limit.py",
    ),
]

BUDGET = [
    Mutant("a retry costs nothing", CORE + "rate_limit.py", "self.tokens -= COST", "pass", "tests/core/test_budget.py"),
    Mutant(
        "the retry budget never refuses",
        CORE + "rate_limit.py",
        "if self.tokens < COST:",
        "if False:",
        "tests/core/test_budget.py",
    ),
    Mutant(
        "the retry budget grows without limit",
        CORE + "rate_limit.py",
        "if self.tokens < CAPACITY:",
        "if True:",
        "tests/core/test_budget.py",
    ),
    Mutant(
        "every success refills the budget, not only a first attempt's",
        IO + "sender.py",
        "            raise error_for(request.verdict())\n",
        "            raise error_for(request.verdict())\n        self.budget.refund()\n",
        T_REQUESTS,
    ),
    Mutant(
        "a retry does not use the budget",
        IO + "sender.py",
        "elif not self.budget.spend():",
        "elif False:",
        "tests/faults/test_waits.py " + T_MODEL,
    ),
]

SPLITTING = [
    Mutant(
        "an UNKNOWN is split",
        CORE + "splitting.py",
        "if verdict.outcome is not Outcome.REJECTED or verdict.status not in self._split_on:",
        "if verdict.status not in self._split_on:",
        T_SPLITTING,
    ),
    Mutant(
        "the second half loses a call",
        CORE + "splitting.py",
        "[BatchPart.of(self.units[start:stop], history) for start, stop in",
        "[BatchPart.of(self.units[start : max(start + 1, stop - 1)], history) for start, stop in",
        T_SPLITTING,
    ),
    Mutant(
        "bisecting never gives up",
        CORE + "splitting.py",
        "if not self._ready and (message.accepted or not self._probes_failed):",
        "if not self._ready:",
        T_SPLITTING,
    ),
    Mutant(
        "bisecting gives up although the message was accepted",
        CORE + "splitting.py",
        "if not self._ready and (message.accepted or not self._probes_failed):",
        "if not self._ready and not self._probes_failed:",
        T_SPLITTING,
    ),
    Mutant(
        "bisecting gives up although a part ended differently",
        CORE + "splitting.py",
        "            self._probes_failed = False\n",
        "",
        T_SPLITTING,
    ),
    Mutant(
        "bisecting gives up without testing the far corner",
        CORE + "splitting.py",
        "{number * (units - 1) // max(1, share - 1) for number in range(share)}",
        "set(range(min(units, share)))",
        T_SPLITTING,
    ),
    Mutant(
        "a message that was to blame is tested again as if nothing were known",
        CORE + "splitting.py",
        "self._probe(1 if self._message.is_rejected else PROBES)",
        "self._probe(PROBES)",
        T_SPLITTING,
    ),
    Mutant(
        "a user who was never sent alone counts as rejected alone",
        CORE + "splitting.py",
        "verdict = msgspec.structs.replace(verdict, shared=True)",
        "pass",
        T_SPLITTING,
    ),
    Mutant(
        "a half forgets earlier rejections",
        CORE + "splitting.py",
        "part.split(verdict.attempts, [len(part.units) // 2])",
        "part.split((), [len(part.units) // 2])",
        T_SPLITTING,
    ),
    Mutant(
        "a learned size is ignored when a batch is sent",
        CORE + "splitting.py",
        "if sizes.fits(whole.users, frame, len(whole.ids)):",
        "if True:",
        T_SPLITTING,
    ),
    Mutant(
        "the larger half of a failed request does not fit",
        CORE + "splitting.py",
        "half, size = (users + 1) // 2, frame + ids // 2 + ids // 16",
        "half, size = max(1, users // 2), frame + ids // 2",
        T_SPLITTING,
    ),
    Mutant(
        "a message too large for any user makes all requests small",
        CORE + "splitting.py",
        "while message.accepted and self._refused:",
        "while self._refused:",
        T_SPLITTING,
    ),
    Mutant(
        "nothing is learned from a 413",
        CORE + "splitting.py",
        "self._sizes.learn(*self._refused.pop())",
        "self._refused.pop()",
        T_SPLITTING,
    ),
    Mutant(
        "halving continues although no size is small enough",
        CORE + "splitting.py",
        "(self._large and self._smallest_failed) or ",
        "",
        T_SPLITTING,
    ),
    Mutant(
        "giving up on a message is not reported",
        CORE + "splitting.py",
        "rest = [*self._large, *self._suspects, *self._left_out]",
        "rest: list[Settled[P]] = []",
        T_SPLITTING,
    ),
]

PACING = [
    Mutant(
        "requests in flight at a cut of the limit cut the limit again",
        CORE + "concurrency.py",
        "same = began <= self._cut or now < self._cut + 2.0 * self._latency",
        "same = False",
        T_CONCURRENCY,
    ),
    Mutant(
        "refusals that are independent of the load collapse the limit",
        CORE + "concurrency.py",
        "if stray and goal < STRAY_FLOOR * self._stray_from:",
        "if False:",
        T_CONCURRENCY,
    ),
    Mutant(
        "a rate below that of one slot is not found",
        CORE + "concurrency.py",
        "return self._before_refusal > 0 and self._goal < PACED",
        "return False",
        T_CONCURRENCY,
    ),
    Mutant(
        "requests that queue in the service do not lower the limit",
        CORE + "concurrency.py",
        "ratio = min(1.0, (self._base + error) / self._latency)",
        "ratio = 1.0",
        T_CONCURRENCY,
    ),
    Mutant(
        "the base latency of a service that became slower is never found",
        CORE + "concurrency.py",
        "        if now >= self._look_at:\n            self._begin_look(now)\n",
        "",
        T_CONCURRENCY,
    ),
    Mutant(
        "the size of a request is taken for latency",
        CORE + "concurrency.py",
        "size = users.bit_length()",
        "size = 1",
        T_CONCURRENCY,
    ),
    Mutant(
        "sparse requests raise the limit",
        CORE + "concurrency.py",
        "if seconds is None or not starved:",
        "if seconds is None:",
        T_CONCURRENCY,
    ),
    Mutant(
        "the delay of the own event loop looks like a queue in the service",
        CORE + "concurrency.py",
        "own = min(late, seconds - base * weight)",
        "own = 0.0",
        T_CONCURRENCY,
    ),
]

BRAKE = [
    Mutant(
        "a refused key is one failure among many",
        CORE + "decisions.py",
        "status in REFUSED or status in REDIRECTS",
        "status in REDIRECTS",
        "tests/core/test_decisions.py",
    ),
    Mutant(
        "a failure share is computed over the whole run",
        CORE + "stop_policy.py",
        "if window.users >= self._policy.after and window.requests >= FEWEST_REQUESTS:",
        "if False:",
        T_BRAKE,
    ),
    Mutant(
        "two requests suffice for a failure share",
        CORE + "stop_policy.py",
        "and before.requests + filling.requests >= FEWEST_REQUESTS:",
        "and before.requests + filling.requests >= 2:",
        T_BRAKE,
    ),
    Mutant(
        "a failure share counts requests, not users",
        CORE + "stop_policy.py",
        "window.failed[outcome] += users",
        "window.failed[outcome] += 1",
        T_BRAKE,
    ),
    Mutant(
        "a long pause counts as an outage",
        CORE + "stop_policy.py",
        "now - max(self._last_response_at, paused_until) >= limit",
        "now - self._last_response_at >= limit",
        T_BRAKE,
    ),
    Mutant(
        "endless pauses stall a run forever",
        CORE + "stop_policy.py",
        "self._too_many() or self._outage(now, _show_status(status))",
        "self._too_many()",
        T_BRAKE,
    ),
    Mutant(
        "an acceptance does not end an outage",
        CORE + "stop_policy.py",
        "self._accepted_at = self._last_response_at = now\n        else:",
        "self._last_response_at = now\n        else:",
        T_BRAKE,
    ),
]

COALESCING = [
    Mutant(
        "the same user is merged twice into a batch",
        CORE + "batching.py",
        "if len(taken) >= users:",
        "if True:",
        T_BATCHING,
    ),
    Mutant(
        "a batch grows over max_users",
        CORE + "batching.py",
        "if users <= joinable.max_users and",
        "if",
        T_BATCHING,
    ),
    Mutant(
        "a batch that refused a call accepts the next call",
        CORE + "batching.py",
        """        del self._joinable[content]
        return None""",
        "        return None",
        T_BATCHING,
    ),
    Mutant(
        "the queue exceeds its limits",
        IO + "limiter.py",
        "return self.users >= self._max_users or self.bytes >= self._max_bytes",
        "return self.users >= self._max_users",
        T_CALLS,
    ),
    Mutant(
        "a call is overtaken by another call that waits for room",
        IO + "limiter.py",
        " or next(iter(self._waiting)) is not scope",
        "",
        T_CALLS,
    ),
    Mutant(
        "only one waiting call is admitted at a time",
        IO + "limiter.py",
        "islice(self._waiting.values(), room)",
        "islice(self._waiting.values(), 1)",
        "tests/io/test_backpressure.py",
    ),
    Mutant(
        "a call is encoded before it waits for room",
        "pushsdk/client.py",
        "        if engine.backlog.is_full:\n",
        "        if False:\n",
        "tests/io/test_backpressure.py",
    ),
    Mutant(
        "a call that joins a batch uses the room of its own message",
        IO + "queue.py",
        "self._backlog.enter(call.unsettled, len(call.ids) + 1)",
        "self._backlog.enter(call.unsettled, len(call.ids) + batch.frame)",
        T_CALLS,
    ),
    Mutant(
        "a forked child sends over its parent's connections",
        IO + "engine.py",
        'the connections belong to the parent."""\n        self.home = None',
        'the connections belong to the parent."""',
        "tests/client/test_lifecycle.py",
    ),
    Mutant(
        "a closed client can still be used",
        IO + "engine.py",
        "        self.closed = True\n        self.home = None\n",
        "        self.closed = True\n",
        T_CALLS,
    ),
    Mutant(
        "the cached bytes of the last message are used for any message",
        CORE + "wire.py",
        "            data = latest\n",
        "            return latest\n",
        "tests/core/test_wire.py",
    ),
    Mutant(
        "a learned size is ignored when a call is queued",
        CORE + "batching.py",
        "if sizes.users != self._learned_users or sizes.bytes != self._learned_bytes:",
        "if False:",
        T_BATCHING,
    ),
    Mutant(
        "calls with different policies share a batch",
        "pushsdk/client.py",
        "engine.queue.submit(call, (encoded, fields, options))",
        "engine.queue.submit(call, (encoded, fields, self._options))",
        T_CALLS,
    ),
    Mutant(
        "calls with different custom fields share a batch",
        "pushsdk/client.py",
        "engine.queue.submit(call, (encoded, fields, options))",
        "engine.queue.submit(call, (encoded, None, options))",
        T_CALLS,
    ),
    Mutant(
        "a cancelled call reports users of a rejected request as NOT_SENT",
        IO + "batch_sender.py",
        """for part, verdict in splitter.rest():
                self._pending.settle_part(part, msgspec""",
        """for part, verdict in ():
                self._pending.settle_part(part, msgspec""",
        "tests/io/test_splitting.py",
    ),
    Mutant(
        "the users of joined calls are lost",
        IO + "batch_sender.py",
        "parts = split_calls(batch.calls, self._sizes, batch.frame)",
        "parts = split_calls(batch.calls[:1], self._sizes, batch.frame)",
        T_CALLS,
    ),
    Mutant(
        "a batch counts as complete before its calls have their results",
        IO + "batch_sender.py",
        "asyncio.get_running_loop().call_soon(self._end_all, part)",
        "self._end_all(part)",
        T_CALLS,
    ),
    Mutant(
        "a cancelled call cancels the other calls of its batch",
        IO + "queue.py",
        """self.leave(call, batch, Failure.CANCELLED)
            if is_unled""",
        """[self.leave(each, batch, Failure.CANCELLED) for each in tuple(batch.calls)]
            if is_unled""",
        T_CALLS,
    ),
    Mutant(
        "a cancelled first call leaves its batch behind",
        IO + "queue.py",
        """            self.leave(call, batch, Failure.CANCELLED)
            if is_unled and batch.calls:""",
        """            self.leave(call, batch, Failure.CANCELLED)
            if False:""",
        T_CALLS,
    ),
    Mutant(
        "a call joins a batch that was already sent",
        "pushsdk/_core/batching.py",
        "if batch.state < BatchState.SENDING <= state and",
        "if False and",
        T_CALLS,
    ),
    Mutant(
        "a call does not end at its deadline",
        IO + "queue.py",
        "entry.include(call.deadline)",
        "entry.include(call.deadline + 3600)",
        T_CALLS,
    ),
    Mutant(
        "a call that waits for room does not end at its deadline",
        IO + "queue.py",
        "self._backlog.wait_for_room(self.timers, call.deadline)",
        "self._backlog.wait_for_room(self.timers, call.deadline + 3600)",
        T_CALLS,
    ),
    Mutant(
        "a late event loop expires calls whose response has been received",
        IO + "timers.py",
        "TURNS_TO_READ = 3",
        "TURNS_TO_READ = 0",
        "tests/faults/test_late.py",
    ),
    Mutant(
        "calls that become due while a late loop reads its sockets expire unread",
        IO + "timers.py",
        "self._order[0] <= now + 0.1",
        "self._order[0] <= self.loop.time() * TICKS_PER_SECOND + 0.1",
        "tests/io/test_timers.py",
    ),
    Mutant(
        "the time of a stopped process counts as an outage",
        RUNS + "sender.py",
        "max(0.0, gap - 2 * TICK) if self._deliveries else gap",
        "0.0 if self._deliveries else gap",
        "tests/runs/test_run_throttled.py",
    ),
    Mutant(
        "later deadlines of a batch are forgotten after the first",
        IO + "queue.py",
        "self.include(min([call.deadline for call in batch.calls if call.deadline > due], default=math.inf))",
        "self.include(math.inf)",
        "tests/io/test_timers.py",
    ),
    Mutant(
        "a finished batch stays in the timer wheel",
        IO + "queue.py",
        """        if batch.entry is not None:
            batch.entry.close()
""",
        """        pass
""",
        T_CALLS,
    ),
    Mutant(
        "a call reports its first part only",
        CORE + "batching.py",
        "self.shares = (*self.shares, (users, verdict))\n            return False",
        "self.shares = (*self.shares, (users, verdict))",
        T_BATCHING,
    ),
    Mutant(
        "a call with several users gets the receipt of a call with one user",
        IO + "batch_sender.py",
        "None if call.duplicates or len(users) > 1 else receipt",
        "receipt",
        T_CALLS,
    ),
    Mutant(
        "a call gets the receipt of its last part",
        CORE + "batching.py",
        """            receipt = None
        else:""",
        "        else:",
        T_CALLS,
    ),
    Mutant(
        "a cancelled call in a batch is sent",
        "pushsdk/client.py",
        "engine.queue.cancel(call)",
        "pass",
        T_CALLS,
    ),
    Mutant(
        "a batch includes calls that were cancelled",
        IO + "queue.py",
        "for call in [call for call in batch.calls if call.future.done()]:",
        "for call in []:",
        T_CALLS,
    ),
    Mutant(
        "a call lingers during a pause longer than its deadline",
        IO + "queue.py",
        "if self._sender.closed or self._rate_limiter.paused_until > call.deadline:",
        "if False:",
        T_CALLS,
    ),
    Mutant(
        "a client waits for calls that have ended",
        IO + "batch_sender.py",
        "self.active.difference_update(part.units)",
        "pass",
        T_CALLS,
    ),
    Mutant(
        "a waiter that starts before a batch ends does not wait for the batch",
        IO + "batch_sender.py",
        """            self.end(call_of(unit))
""",
        """            pass
""",
        T_CALLS,
    ),
    Mutant(
        "a call past its deadline is NOT_SENT while its request is in flight",
        IO + "batch_sender.py",
        "Verdict(outcome=Outcome.UNKNOWN, failure=Failure.DEADLINE)",
        "Verdict(outcome=Outcome.NOT_SENT, failure=Failure.DEADLINE)",
        T_CALLS,
    ),
    Mutant(
        "a cancelled batch leaks its slot",
        IO + "queue.py",
        """            batch.has_slot = False
            self._limiter.release(batch.users)""",
        "            pass",
        T_CALLS,
    ),
    Mutant(
        "the outcome of an abandoned send is not kept",
        IO + "batch_sender.py",
        "self.abandoned.append(event)",
        "pass",
        T_CALLS,
    ),
    Mutant(
        "the queue's room is not released",
        IO + "queue.py",
        """batch.has_slot = True
        self._backlog.leave(batch.users, batch.size)""",
        "batch.has_slot = True",
        T_CALLS,
    ),
]

SENDING = [
    Mutant(
        "a cancelled wait for a slot leaks the slot",
        IO + "limiter.py",
        "and waiter.future.result() is None:\n                self.release(users)",
        "and waiter.future.result() is None:\n                pass",
        T_REQUESTS,
    ),
    Mutant(
        "a pause does not delay requests",
        IO + "engine.py",
        "self.limiter.pause(until)",
        "pass",
        "tests/faults/test_waits.py",
    ),
    Mutant(
        "any Retry-After is waited for, however long",
        IO + "sender.py",
        "elif at_least > request.policy.max_retry_after:",
        "elif False:",
        "tests/faults/test_waits.py",
    ),
    Mutant(
        "a delay may end after the deadline",
        IO + "sender.py",
        "elif self._loop.time() + wait >= request.deadline:",
        "elif False:",
        "tests/faults/test_waits.py " + T_MODEL,
    ),
    Mutant(
        "an attempt has no deadline",
        IO + "sender.py",
        "limit = min(request.deadline, ",
        "limit = min(request.deadline + 3600, ",
        "tests/faults/test_closing.py",
    ),
    Mutant(
        "a stale connection is not replaced",
        IO + "sender.py",
        "if failure is Failure.STALE and self._may_replace(request):",
        "if False:",
        T_REQUESTS,
    ),
    Mutant(
        "a refused key is fetched again and again",
        IO + "sender.py",
        "if request.rekeyed or self._credentials.fixed is not None:",
        "if self._credentials.fixed is not None:",
        T_REQUESTS,
    ),
    Mutant(
        "a cancellation is retried like a failure",
        IO + "retrying.py",
        "if state.outcome is None or not isinstance(state.outcome.exception(), PushError):",
        "if state.outcome is None:",
        T_REQUESTS,
    ),
    Mutant(
        "an external cancellation is swallowed at a deadline",
        IO + "timers.py",
        "return task.uncancel() <= self._cancelling and kind is asyncio.CancelledError",
        "task.uncancel()\n        return kind is asyncio.CancelledError",
        T_REQUESTS,
    ),
    Mutant(
        "a cancelled send keeps its task alive forever",
        IO + "timers.py",
        "task, self._task = self._task, None",
        "task = self._task",
        "tests/io/test_cancellation.py",
    ),
    Mutant(
        "deadlines are accurate to half a second only",
        IO + "timers.py",
        "TICKS_PER_SECOND = 250",
        "TICKS_PER_SECOND = 2",
        "tests/faults/test_closing.py " + T_MODEL,
    ),
]

TRANSPORT = [
    Mutant(
        "a new connection is not checked for input before the first byte",
        IO + "fast_post.py",
        "must_be_silent = sock.is_plain or evidence.reused",
        "must_be_silent = evidence.reused",
        "tests/faults/test_early.py",
    ),
    Mutant(
        "a new TLS connection must be silent too",
        IO + "fast_post.py",
        "must_be_silent = sock.is_plain or evidence.reused",
        "must_be_silent = True",
        T_WIRE,
    ),
    Mutant(
        "a service that always speaks first is reconnected to endlessly",
        IO + "sender.py",
        "request.replaced + 1 if request.evidence.reused else self._replacements",
        "request.replaced + 1",
        "tests/faults/test_early.py",
    ),
    Mutant(
        "a response to a request that has not arrived is accepted",
        IO + "fast_post.py",
        "        if sock.is_acknowledged():\n",
        "        if True:\n",
        "tests/faults/test_early.py",
    ),
    Mutant(
        "a connection with such a response returns to the pool",
        IO + "fast_post.py",
        "            protocol.force_close()\n",
        "",
        "tests/faults/test_early.py",
    ),
    Mutant(
        "only the first response of a connection must answer a request that has arrived",
        IO + "fast_post.py",
        "sock.quickest = seconds",
        "sock.quickest = 0.0",
        "tests/faults/test_early.py",
    ),
    Mutant(
        "a 204 with a long header can't be parsed",
        IO + "fast_post.py",
        '"max_field_size": 64 * 1024',
        '"max_field_size": 8190',
        "tests/io/test_transport.py",
    ),
    Mutant(
        "a pooled connection is not checked for input before the first byte",
        IO + "fast_post.py",
        "if protocol.should_close or (must_be_silent and (sock.poll(0) or protocol.writing_paused)):",
        "if False:",
        T_WIRE,
    ),
    Mutant(
        "`written` is set before the write",
        IO + "transport.py",
        "await writer.write(self._value)\n        evidence.written = True",
        "evidence.written = True\n        await writer.write(self._value)",
        T_WIRE,
    ),
    Mutant(
        "`started_writing` is set after the write",
        IO + "transport.py",
        "evidence.started_writing = True\n        await writer.write(self._value)",
        "await writer.write(self._value)\n        evidence.started_writing = True",
        "tests/io/test_transport.py tests/faults/test_cancelled.py",
    ),
    Mutant(
        "the fast path does not record that it writes",
        IO + "fast_post.py",
        "            evidence.started_writing = True\n",
        "",
        T_WIRE,
    ),
    Mutant(
        "the connection of an aborted fast-path request returns to the pool",
        IO + "fast_post.py",
        "        except BaseException:\n            connection.close()",
        "        except BaseException:\n            connection.release()",
        "tests/io/test_fast_post.py " + T_WIRE,
    ),
    Mutant(
        "a body of any size is written at once",
        IO + "fast_post.py",
        "len(body) <= WHOLE_BODY_LIMIT\n            and type",
        "type",
        "tests/io/test_fast_post.py",
    ),
    Mutant(
        "the fast path relies on an unknown aiohttp version",
        IO + "fast_post.py",
        "release.startswith(KNOWN_RELEASES) and ",
        "",
        "tests/io/test_fast_post.py",
    ),
    Mutant(
        "the fast path bypasses mocks of a session's requests",
        IO + "fast_post.py",
        "            and type(session)._request is _REQUEST\n",
        "",
        "tests/io/test_fast_post.py",
    ),
    Mutant(
        "the fast path bypasses a session that forbids writes",
        IO + "fast_post.py",
        "            and aiohttp.ClientRequest.send is _SEND\n",
        "",
        "tests/io/test_fast_post.py",
    ),
    Mutant(
        "the fast path bypasses a session's proxy",
        IO + "fast_post.py",
        "        and not any((session._default_proxy, session._trust_env))\n",
        "",
        "tests/io/test_fast_post.py",
    ),
    Mutant(
        "data received before the request counts as the response",
        IO + "fast_post.py",
        "if protocol.should_close or (must_be_silent and (sock.poll(0) or protocol.writing_paused)):",
        "if evidence.reused and (protocol.should_close or poll(0) or protocol.writing_paused):",
        "tests/io/test_fast_post.py",
    ),
    Mutant(
        "an error keeps the request body",
        IO + "transport.py",
        "            error.__traceback__ = None\n",
        "",
        "tests/io/test_fast_post.py",
    ),
    Mutant(
        "redirects are followed",
        IO + "transport.py",
        '"allow_redirects": False',
        '"allow_redirects": True',
        "tests/security/test_destinations.py",
    ),
    Mutant(
        "a failure that needs a fix is requeued",
        CORE + "error_mapping.py",
        "return is_retryable(verdict) and not keyless",
        "return is_retryable(verdict)",
        "tests/client/test_retryable.py",
    ),
    Mutant(
        "a pending user who needs a fix is settled for good",
        CORE + "decisions.py",
        "if is_unsent or status in REFUSED",
        "if status in REFUSED",
        "tests/core/test_decisions.py",
    ),
    Mutant(
        "the types of a mapping are not checked",
        CORE + "wire.py",
        "    known = _typed(plain, model, path)\n",
        "    known = msgspec.convert({}, model)\n",
        "tests/core/test_wire.py",
    ),
    Mutant(
        "a base_url may contain the version",
        CORE + "address.py",
        "/v1(/push|/campaigns)?$",
        "/v1/v1$",
        T_ENDPOINT,
    ),
    Mutant(
        "retry_on accepts values without effect",
        CORE + "policy.py",
        "if self.retry_on != RETRYABLE:",
        "if False:",
        T_POLICY,
    ),
    Mutant(
        "headers are matched case-sensitively",
        CORE + "outcome.py",
        "return self._items[name.lower()][1]",
        "return self._items[name][1]",
        "tests/core/test_errors.py",
    ),
    Mutant(
        "a timedelta stays a timedelta",
        CORE + "policy.py",
        "value = value.total_seconds()",
        "value = value.microseconds",
        "tests/client/test_wrong_settings.py",
    ),
    Mutant(
        "an unclosed client does not warn",
        IO + "engine.py",
        'if (loop := getattr(self, "home", None)) is not None:',
        'if (loop := getattr(self, "house", None)) is not None:',
        "tests/client/test_wrong_settings.py",
    ),
    Mutant(
        "an error keeps the key that the service echoed",
        CORE + "outcome.py",
        'text = text.replace(form, "***")',
        "pass",
        "tests/core/test_outcome.py",
    ),
    Mutant(
        "a text quotes what the service answered",
        CORE + "error_mapping.py",
        "target.shows_answers and decisive.answer",
        "decisive.answer",
        "tests/client/test_answers.py",
    ),
    Mutant(
        "a repr shows the key",
        CORE + "address.py",
        "return \"'***'\"",
        "return str.__repr__(self)",
        T_ENDPOINT,
    ),
    Mutant(
        "an error shows the whole location of a redirect",
        CORE + "error_mapping.py",
        'urlsplit(attempt.headers.get("Location", "")).hostname',
        'attempt.headers.get("Location", "")',
        T_ERRORS,
    ),
    Mutant(
        "a final rejection may be retried",
        CORE + "decisions.py",
        "(last.outcome is Outcome.REJECTED and verdict.failure is not None)",
        "last.outcome is Outcome.REJECTED",
        T_ERRORS,
    ),
    Mutant(
        "a call that reached a user may be retried without a key",
        CORE + "error_mapping.py",
        " and not (counts[Outcome.ACCEPTED] or counts[Outcome.UNKNOWN])",
        "",
        T_ERRORS,
    ),
    Mutant(
        "a job that reached a user is not delivered again",
        "pushsdk/client.py",
        "error.retryable = error._open",
        "pass",
        "tests/client/test_retryable.py",
    ),
    Mutant(
        "a pending part is judged by the last rejection",
        CORE + "error_mapping.py",
        "any(retryable(verdict) for _, verdict in sent)",
        "retryable(sent[-1][1])",
        "tests/client/test_retryable.py",
    ),
    Mutant(
        "a part of the key is not redacted",
        CORE + "address.py",
        '("__add__", "__getitem__", ',
        '("__add__", ',
        "tests/security/test_crash_reports.py",
    ),
    Mutant(
        "an injected session decides whether certificates are verified",
        "pushsdk/_io/transport.py",
        "ssl if verifying else _verifying()",
        "ssl",
        "tests/security/test_destinations.py",
    ),
    Mutant(
        "an injected session's proxy sees the key",
        "pushsdk/_io/transport.py",
        "if self._exposed and _is_proxied(self._session, self._base_url):",
        "if False:",
        "tests/security/test_destinations.py",
    ),
    Mutant(
        "the proxy's password stays in the URL",
        "pushsdk/_io/transport.py",
        "return url.with_user(None), ",
        "return url, ",
        "tests/security/test_crash_reports.py",
    ),
    Mutant(
        "plain http is allowed for every host",
        CORE + "address.py",
        "and not is_loopback(",
        "and not bool(",
        T_ENDPOINT,
    ),
]

# Bugs that only kill -9 reveals.
KILLS = [
    Mutant(
        "a chunk is claimed after it was sent",
        RUNS + "sender.py",
        "                verdict = await self._engine.sender.run(job, has_slot=True)\n",
        """                job.claim = None
                verdict = await self._engine.sender.run(job, has_slot=True)
                await claim.claim()
                claim.settle(verdict)
""",
        T_KILL,
    ),
    Mutant(
        "a chunk is claimed before it has a connection",
        RUNS + "sender.py",
        "                verdict = await self._engine.sender.run(job, has_slot=True)\n",
        """                await claim.claim()
                verdict = await self._engine.sender.run(job, has_slot=True)
""",
        "tests/runs/test_kill_unsent.py",
    ),
    Mutant(
        "a resume sends users that were claimed and never settled",
        RUNS + "run_file/journal.py",
        "PENDING = frozenset({UserState.PENDING})",
        "PENDING = frozenset({UserState.PENDING, UserState.CLAIMED})",
        T_KILL,
    ),
    Mutant(
        "a resume sends users that it was told to skip",
        RUNS + "pipeline.py",
        'list(journal.ranges(IN_DOUBT)) if settings.on_unknown == "resend" else []',
        "list(journal.ranges(IN_DOUBT))",
        T_KILL,
    ),
    Mutant(
        "a run takes a disconnect for NOT_SENT",
        CORE + "outcome.py",
        "if evidence.started_writing:",
        "if evidence.started_writing and evidence.status is not None:",
        T_KILL,
    ),
    Mutant(
        "a chunk that is resent with an unknown outcome is not marked",
        RUNS + "log.py",
        "_RESENT if resent else _CLAIMED",
        "_CLAIMED",
        T_KILL,
    ),
    Mutant(
        "an aborted commit can't be rolled back",
        RUNS + "run_file/file.py",
        "PRAGMA journal_mode = PERSIST",
        "PRAGMA journal_mode = MEMORY",
        "tests/runs/test_kill.py::test_a_run_survives_kills_in_the_middle_of_a_commit",
    ),
]

RUNNING = [
    Mutant(
        "a rejection after an unknown outcome is planned again",
        CORE + "decisions.py",
        "pending = unknown if in_doubt else UserStatus",
        "pending = UserStatus",
        "tests/runs/test_runs_model.py",
    ),
    Mutant(
        "a rejection after an unknown outcome is split",
        CORE + "decisions.py",
        "    if in_doubt:\n        return",
        "    if False:\n        return",
        "tests/runs/test_runs_model.py",
    ),
    Mutant(
        "a part of a chunk is sent with the ids of the whole chunk",
        RUNS + "plan.py",
        "ids = chunk.ids if positions.users == chunk.users else",
        "ids = chunk.ids if piece.users else",
        "tests/runs/test_runs_model.py",
    ),
    Mutant(
        "a chunk is sent although its claim could not be committed",
        RUNS + "log.py",
        'return (request.users, request.ids) if self.failed is None else (0, b"")',
        "return request.users, request.ids",
        "tests/runs/test_run_trouble.py",
    ),
    Mutant(
        "a failing run file swallows the cancellation of its run",
        RUNS + "pipeline.py",
        "flush()\n        self._log.check()",
        "flush()\n            self._log.check()",
        T_EDGES,
    ),
    Mutant(
        "a run that is cancelled twice closes its file during a write",
        RUNS + "log.py",
        "except asyncio.CancelledError as error:\n                cancelled = error",
        "except asyncio.CancelledError:\n                raise",
        T_EDGES,
    ),
    Mutant(
        "a commit that was cancelled with its loop counts as made",
        RUNS + "log.py",
        "if not group.is_begun:",
        "if False:",
        "tests/runs/test_group_commit.py",
    ),
    Mutant(
        "each chunk decides for itself if the message is to blame",
        RUNS + "sender.py",
        "            async with self._blame_lock:\n",
        "            if True:\n",
        "tests/runs/test_runs.py",
    ),
    Mutant(
        "an untried user is rejected although other users were accepted since",
        RUNS + "pipeline.py",
        "if self._sender.message.accepted and self._journal.header.message is not None:",
        "if False:",
        "tests/runs/test_runs.py",
    ),
    Mutant(
        "the stop policy ignores users that were given up",
        RUNS + "sender.py",
        "self._monitor.settled(Outcome.REJECTED, sum([part.users for part, _ in rest]), rest[0][1].status, now)",
        "pass",
        "tests/runs/test_runs.py",
    ),
    Mutant(
        "the delays of a run do not grow",
        RUNS + "sender.py",
        "self._policy.backoff(tries, ",
        "self._policy.backoff(1, ",
        "tests/runs/test_run_throttled.py",
    ),
]

CLI = "pushsdk/cli/"
T_SETTINGS = "tests/cli/test_settings.py"
T_RUNS = "tests/cli/test_progress.py tests/cli/test_broadcast_command.py"

COMMANDS = [
    Mutant(
        "a relative configuration folder is used, below the working directory",
        CLI + "settings.py",
        "if path and os.path.isabs(path)",
        "if path",
        T_SETTINGS,
    ),
    Mutant(
        "a group-readable settings file may contain the key",
        CLI + "settings.py",
        "mode & 0o077",
        "mode & 0o007",
        T_SETTINGS,
    ),
    Mutant(
        "a key file named in the settings file is resolved in the working directory",
        CLI + "settings.py",
        "_file_content(folder / str(value))",
        "_file_content(Path(str(value)))",
        T_SETTINGS,
    ),
    Mutant(
        "a stopped run exits like a run with unknown users",
        CLI + "exit.py",
        "        (stopped, Exit.STOPPED),\n        (unknown, Exit.UNKNOWN),",
        "        (unknown, Exit.UNKNOWN),\n        (stopped, Exit.STOPPED),",
        T_RUNS,
    ),
    Mutant(
        "without a terminal to confirm, the command sends",
        CLI + "terminal.py",
        "        raise usage_error(f\"{question} Can't ask",
        "        return\n        raise usage_error(f\"{question} Can't ask",
        "tests/cli/test_send_command.py",
    ),
    Mutant(
        "bidirectional control characters reach the terminal",
        CLI + "terminal.py",
        'frozenset({"Cc", "Cf", ',
        'frozenset({"Cc", ',
        "tests/cli/test_terminal.py",
    ),
    Mutant(
        "the service's uuid is printed unescaped",
        CLI + "commands/send.py",
        "        say(created.uuid)",
        '        __import__("sys").stdout.write(created.uuid)',
        "tests/cli/test_terminal.py",
    ),
    Mutant(
        "JSON on a terminal is not escaped",
        CLI + "terminal.py",
        "escaped(msgspec.json.encode(data).decode())",
        "msgspec.json.encode(data).decode()",
        "tests/cli/test_terminal.py",
    ),
    Mutant(
        "a dry run sends",
        CLI + "commands/send.py",
        'print_curl(settings["base_url"], PUSH, body)\n        return Exit.DONE\n',
        'print_curl(settings["base_url"], PUSH, body)\n',
        "tests/cli/test_send_command.py",
    ),
    Mutant(
        "a limited terminal shows no progress",
        CLI + "output.py",
        "console.is_terminal and not console.is_dumb_terminal",
        "console.is_terminal",
        "tests/cli/test_progress.py",
    ),
    Mutant(
        "an error on the command line uses Python's names",
        CLI + "__init__.py",
        "in for_shell(str(error)).splitlines()",
        "in str(error).splitlines()",
        "tests/cli/test_send_command.py",
    ),
    Mutant(
        "a finished run that is started again looks like a new run",
        CLI + "commands/runs.py",
        "if result.planned and users == 0:",
        "if False:",
        T_RUNS,
    ),
    Mutant(
        "a disk that is full during planning suggests a resume",
        RUNS + "run_file/file.py",
        'Outcome.NOT_SENT: "start the broadcast again: its plan is incomplete and nothing was sent"',
        'Outcome.NOT_SENT: "resume the run"',
        T_RUNS,
    ),
    Mutant(
        "a second Ctrl-C waits as long as the first",
        CLI + "interrupt.py",
        "        if stop.is_set():\n",
        "        if False:\n",
        T_RUNS,
    ),
    Mutant(
        "an interrupted run exits by its counts",
        CLI + "commands/runs.py",
        "return result, stop.is_set()",
        "return result, False",
        T_RUNS,
    ),
    Mutant(
        "the command that resumes shows the proxy's password",
        CLI + "commands/runs.py",
        'elif value is not False and not (name == "proxy" and "@" in str(value)):',
        "elif value is not False:",
        T_RUNS,
    ),
]

AUDIENCE = [
    Mutant(
        "ids seen before the spill to disk are forgotten",
        READERS + "distinct.py",
        ".items() if user not in seen}",
        ".items() if self._spill or user not in seen}",
        T_DISTINCT,
    ),
    Mutant(
        "after the spill, a later row of an id replaces the first row",
        READERS + "distinct.py",
        "            first.setdefault(row[0], row)\n",
        "            first[row[0]] = row\n",
        T_DISTINCT,
    ),
    Mutant(
        "an Audience is made from a file name",
        READERS + "audience.py",
        "if not isinstance(source, Source):",
        "if False:",
        T_AUDIENCE,
    ),
    Mutant(
        "ids beyond the last full chunk are dropped",
        RUNS + "planner.py",
        "del self._ids[:whole]",
        "self._ids.clear()",
        "tests/runs/test_plan.py tests/runs/test_runs.py",
    ),
    Mutant(
        "a NULL or empty id is planned",
        READERS + "duckdb_reader.py",
        "if not all(map(operator.itemgetter(0), rows)):",
        "if False:",
        T_TABLES,
    ),
    Mutant(
        "DuckDB treats a file name as a pattern",
        READERS + "duckdb_reader.py",
        're.sub(r"([*?\\[])", r"[\\1]", str(path))',
        "str(path)",
        T_TABLES,
    ),
    Mutant(
        "a query can read the process's variables",
        READERS + "duckdb_reader.py",
        '"python_enable_replacements": False',
        '"python_enable_replacements": True',
        T_TABLES,
    ),
    Mutant(
        "a change of an input file between two reads is not detected",
        READERS + "source.py",
        "(stat.st_size, stat.st_mtime_ns)",
        "(stat.st_size, 0)",
        T_AUDIENCE,
    ),
    Mutant(
        "a fraction or a boolean in JSON is an id",
        READERS + "text_files.py",
        "if type(user) is int:",
        "if isinstance(user, (int, float)):",
        T_AUDIENCE,
    ),
]

RUN_FILE = [
    Mutant(
        "the state changes before the commit",
        RUNS + "run_file/journal.py",
        "        self.commit(events)\n        self.apply(events)\n",
        "        self.apply(events)\n        self.commit(events)\n",
        T_JOURNAL + "disk.py",
    ),
    Mutant(
        "a failed commit is retried",
        RUNS + "run_file/file.py",
        "        self._failed = why\n",
        "",
        T_JOURNAL + "disk.py",
    ),
    Mutant(
        "missing rows after the log's head are not detected",
        RUNS + "run_file/journal.py",
        ", newest or 0) != (last, last_crc, last)",
        ") != (last, last_crc)",
        T_JOURNAL + "damage.py",
    ),
    Mutant(
        "a log row that does not continue the previous row is accepted",
        RUNS + "run_file/journal.py",
        "own == crc32(data, crc)",
        "True",
        T_JOURNAL + "damage.py",
    ),
    Mutant(
        "the seal is not compared with the plan",
        RUNS + "run_file/journal.py",
        "if seal != Seal(",
        "if not Seal(",
        T_JOURNAL + "damage.py",
    ),
    Mutant(
        "pages are not checked before a write",
        RUNS + "run_file/file.py",
        '!= [(b"ok",)]',
        "== []",
        T_JOURNAL + "damage.py",
    ),
    Mutant(
        "a commit interrupted by a kill counts as damage",
        RUNS + "run_file/file.py",
        '        db.execute("PRAGMA writable_schema = ON")\n',
        "",
        T_JOURNAL + "kill.py",
    ),
    Mutant(
        "a lock on a deleted file counts as a lock",
        IO + "files.py",
        "if os.path.samestat(os.fstat(file), os.lstat(path)):",
        "if True:",
        T_JOURNAL + "place.py",
    ),
    Mutant(
        "the next event forgets that a user was resent with an unknown outcome",
        CORE + "user_states.py",
        "status._replace(resent=True) if old.resent else status",
        "status",
        "tests/core/test_user_states.py",
    ),
]

EMULATOR_RULES = [
    Mutant(
        "a token bucket exceeds its burst",
        EMULATOR + "limits.py",
        "self._tokens = min(self._burst, self._tokens + (self._filled - before) * self.limits.rate)",
        "self._tokens = self._tokens + (self._filled - before) * self._rate",
        T_EMULATOR + "limits.py",
    ),
    Mutant(
        "Retry-After is rounded down",
        EMULATOR + "limits.py",
        "delay = math.ceil(",
        "delay = int(",
        T_EMULATOR + "limits.py",
    ),
    Mutant(
        "a request without a token takes a token",
        EMULATOR + "limits.py",
        "            return wait\n        self._tokens",
        "            self._tokens -= 1\n            return wait\n        self._tokens",
        T_EMULATOR + "limits.py",
    ),
    Mutant(
        "strict mode checks types before names",
        EMULATOR + "shapes.py",
        "    value = read_json(body)\n",
        "    READERS[endpoint](body)\n    value = read_json(body)\n",
        T_EMULATOR + "shapes.py",
    ),
    Mutant(
        "strict mode does not check the actions of a category",
        "pushsdk/_core/lint.py",
        '    models.ActionCategory: {"actionComponents": models.ActionComponent},\n',
        "",
        T_EMULATOR + "shapes.py",
    ),
    Mutant(
        "a disabled rule counts requests",
        EMULATOR + "faults.py",
        "if rule.enabled and rule.hit(endpoint, user_ids, size):",
        "if rule.hit(endpoint, user_ids, size) and rule.enabled:",
        T_EMULATOR + "fault_rules.py",
    ),
    Mutant(
        "a search distinguishes upper and lower case",
        EMULATOR + "store/search.py",
        "low, folded = value.lower(), value.casefold()",
        "low, folded = value.lower(), value",
        T_EMULATOR + "search.py",
    ),
    Mutant(
        "a language includes others that begin alike",
        EMULATOR + "store/search.py",
        'for end in " -_"]',
        'for end in ("", "-", "_")]',
        T_EMULATOR + "search.py",
    ),
    Mutant(
        "a slow request counts as failed",
        EMULATOR + "store/search.py",
        " AND NOT (requests.accepted = 1 AND requests.status < 400)",
        "",
        T_EMULATOR + "search.py",
    ),
    Mutant(
        "a push is shown on a platform that the push does not name",
        EMULATOR + "phones.py",
        'Enabled") is not True:',
        'Enabled") is False:',
        T_EMULATOR + "phones.py",
    ),
    Mutant(
        "an undelivered push replaces another push",
        EMULATOR + "phones.py",
        'return "replaced" if replaced <= now else "delivered"',
        'return "replaced" if replaced < _NEVER else "delivered"',
        T_EMULATOR + "phones.py",
    ),
    Mutant(
        "a body can end the shell quote of a snippet",
        EMULATOR + "snippets.py",
        """set(b"%\\\\'-")""",
        """set(b"%\\\\-")""",
        T_EMULATOR + "snippets.py",
    ),
]

SEGMENTS = [
    Mutant(
        "a segment query can read and write any file that DuckDB can open",
        EMULATOR + "campaigns/segment.py",
        '("SET enable_external_access = false", ',
        "(",
        T_EMULATOR + "segment_hostile.py",
    ),
    Mutant(
        "a link out of the table folder is followed",
        EMULATOR + "campaigns/segment.py",
        "or not real.is_relative_to(root) ",
        "",
        T_EMULATOR + "segment.py",
    ),
    Mutant(
        "the last row of a user wins",
        EMULATOR + "campaigns/segment.py",
        "SELECT min(number)",
        "SELECT max(number)",
        T_EMULATOR + "segment.py",
    ),
    Mutant(
        "a query continues forever after its parent died",
        EMULATOR + "campaigns/segment.py",
        "        signal.alarm(int(seconds) + _GRACE)\n",
        "",
        T_EMULATOR + "segment_hostile.py",
    ),
    Mutant(
        "the query process gets the key",
        EMULATOR + "campaigns/segment.py",
        'if not name.startswith("PUSHSDK_")',
        "if name",
        T_EMULATOR + "segment.py",
    ),
]

EMULATOR_CONTROL = [
    Mutant(
        "a partially parsed search deletes requests",
        EMULATOR + "control/handlers.py",
        "if search.partial:",
        "if False:",
        T_EMULATOR + "control.py",
    ),
    Mutant(
        "a request that is received during a read is reported twice",
        EMULATOR + "control/handlers.py",
        "                before=ids[-1] + 1,\n",
        "",
        T_EMULATOR + "streams.py",
    ),
    Mutant(
        "other ports of this machine may call the control API",
        EMULATOR + "guard.py",
        '{"none", "same-origin"}',
        '{"none", "same-origin", "same-site"}',
        T_EMULATOR + "guard.py",
    ),
    Mutant(
        "any mention of images in the policy lets images load",
        EMULATOR + "web/__init__.py",
        'request.query.get("images") == "1"',
        '"images" in request.query',
        T_EMULATOR + "pages.py",
    ),
    Mutant(
        "a restarted campaign remembers users it had reached",
        EMULATOR + "campaigns/lifecycle.py",
        "            self._store.withdraw(campaign)\n            tables, segment = ",
        "            tables, segment = ",
        T_EMULATOR + "campaigns.py",
    ),
    Mutant(
        "a campaign started by hand starts again at its time",
        EMULATOR + "campaigns/lifecycle.py",
        ' or not (by_hand or campaign.state == "waiting")',
        "",
        T_EMULATOR + "campaigns.py",
    ),
]

EMULATOR_BOUNDS = [
    Mutant(
        "an untrusted client's segment is run",
        EMULATOR + "campaigns/lifecycle.py",
        "None if trusted else _UNTRUSTED",
        "None",
        T_EMULATOR + "bounds.py",
    ),
    Mutant(
        "a large request is linted",
        EMULATOR + "control/views.py",
        "    large = is_large(body)\n",
        "    large = False\n",
        T_EMULATOR + "views.py",
    ),
    Mutant(
        "users make a request large",
        EMULATOR + "control/views.py",
        "    large = is_large(body)\n",
        "    large = len(body) > LARGE\n",
        T_EMULATOR + "views.py",
    ),
]

EMULATOR_STORE = [
    Mutant(
        "an id that occurs twice in one push counts once",
        EMULATOR + "store/queries.py",
        "record.digest, request, times) for user",
        "record.digest, request, 1) for user",
        T_EMULATOR + "store.py",
    ),
    Mutant(
        "two different pushes to one user are a duplicate",
        EMULATOR + "store/queries.py",
        'GROUP BY user, digest ORDER BY user, digest"',
        'GROUP BY user ORDER BY user"',
        T_EMULATOR + "oracle.py",
    ),
    Mutant(
        "pushes with different custom fields are duplicates",
        EMULATOR + "shapes.py",
        "replace(self, user_ids=())",
        "replace(self, user_ids=(), custom_fields=UNSET)",
        T_EMULATOR + "oracle.py",
    ),
    Mutant(
        "a reset keeps the counts of the inbox",
        EMULATOR + "store/database.py",
        "CREATE TABLE received(                       -- accepted pushes of each user; outlives the request\n"
        "    inbox INTEGER NOT NULL REFERENCES inboxes ON DELETE CASCADE,",
        "CREATE TABLE received(inbox INTEGER NOT NULL,",
        T_EMULATOR + "store.py",
    ),
    Mutant(
        "the smallest inbox is evicted first",
        EMULATOR + "store/queries.py",
        "FROM inboxes ORDER BY bytes DESC LIMIT 1",
        "FROM inboxes WHERE bytes ORDER BY bytes LIMIT 1",
        T_EMULATOR + "store.py",
    ),
    Mutant(
        "requests in progress at a reset count for the rules after the reset",
        EMULATOR + "service.py",
        "decision = rules.decide(",
        "decision = inbox.rules.decide(",
        T_EMULATOR + "inboxes.py",
    ),
    Mutant(
        "a request that did not fit counts against the quota",
        EMULATOR + "service.py",
        "        if (failure := self._keep(record)) is not None:\n",
        "        limiter.used += record.users\n        if (failure := self._keep(record)) is not None:\n",
        T_EMULATOR + "inboxes.py",
    ),
    Mutant(
        "a request is answered before it is stored",
        EMULATOR + "service.py",
        "            self._store.write([record])\n",
        "            self._loop.call_soon(self._store.write, [record])\n",
        T_EMULATOR + "inboxes.py",
    ),
    Mutant(
        "a forked child deletes its parent's store",
        EMULATOR + "store/database.py",
        "    if not guard.is_inherited:\n        ending.close()",
        "    ending.close()",
        T_EMULATOR + "database.py",
    ),
    Mutant(
        "links are followed",
        "pushsdk/_sqlite.py",
        "    opened = os.lstat(path)\n",
        "    opened = os.stat(path)\n",
        T_EMULATOR + "database.py",
    ),
    Mutant(
        "a foreign database is opened",
        "pushsdk/_sqlite.py",
        "if application_id != form.application_id:",
        "if False:",
        T_EMULATOR + "database.py",
    ),
    Mutant(
        "a waiter misses an event from another thread",
        EMULATOR + "inboxes.py",
        "                if self.mark > mark:\n                    return\n",
        "",
        T_EMULATOR + "event_log.py",
    ),
]

TELEMETRY = [
    Mutant(
        "a retry looks like a first attempt",
        IO + "sender.py",
        "observer.attempt(request.operation, request.users, request.own, ",
        "observer.attempt(request.operation, request.users, 0, ",
        T_OTEL,
    ),
    Mutant(
        "a span stays open if its attempt ends before the verdict",
        IO + "sender.py",
        "                request.span.end(None, request.evidence.failure)\n",
        "",
        T_OTEL,
    ),
    Mutant(
        "aiohttp's instrumentation adds a second span",
        OTEL + "_spans.py",
        "trace.set_span_in_context(self.span, context)",
        "trace.set_span_in_context(self.span)",
        "tests/otel/test_on_sockets.py",
    ),
    Mutant(
        "aiohttp's instrumentation makes a span that sampling dropped",
        OTEL + "_spans.py",
        "_AttachedContext(context if self.span is None",
        "_AttachedContext(_current() if self.span is None",
        "tests/otel/test_on_sockets.py",
    ),
    Mutant(
        "the attempt's span is not current when other code sees the request",
        IO + "transport.py",
        "with _UNWATCHED if span is None else span.current():",
        "with _UNWATCHED:",
        "tests/otel/test_on_sockets.py",
    ),
    Mutant(
        "all accepted attempts outside the sample have a span",
        OTEL + "_spans.py",
        "random() >= self._ratio:",
        "random() < self._ratio:",
        T_SAMPLING,
    ),
    Mutant(
        "a failure outside the sample has no span",
        OTEL + "_spans.py",
        "(attempt is None or attempt.outcome is not _ACCEPTED)",
        "attempt is None",
        T_SAMPLING,
    ),
    Mutant(
        "a deferred span starts when it is created",
        OTEL + "_spans.py",
        "attributes, start_time=started)",
        "attributes)",
        T_SAMPLING,
    ),
    Mutant(
        "a retry has a span by chance only",
        OTEL + "_spans.py",
        "if first and self._ratio < 1.0",
        "if self._ratio < 1.0",
        T_SAMPLING,
    ),
    Mutant(
        "a part of a split request has a span by chance only",
        IO + "sender.py",
        "first = not request.attempts",
        "first = not request.own",
        T_SAMPLING,
    ),
    Mutant(
        "the trace of another process has a gap",
        OTEL + "_spans.py",
        "trace.get_current_span(context).get_span_context().trace_flags.sampled",
        "trace.get_current_span(context).is_recording()",
        T_SAMPLING,
    ),
    Mutant(
        "an attempt without a span is not measured",
        OTEL + "_spans.py",
        "(recording or observer.measured)",
        "recording",
        T_SAMPLING,
    ),
    Mutant(
        "an exemplar of a histogram refers to no span",
        OTEL + "_spans.py",
        "of_metric, context)",
        "of_metric)",
        "tests/otel/test_metrics.py",
    ),
    Mutant(
        "sampling is decided after the trace header was sent",
        OTEL + "__init__.py",
        "if propagate is not False and sample_accepted < 1:",
        "if False:",
        T_SAMPLING,
    ),
    Mutant(
        "a shared request's parent is the call that freed its slot",
        OTEL + "_spans.py",
        'self._start("push batch", context, attributes',
        'self._start("push batch", None, attributes',
        T_OTEL,
    ),
    Mutant(
        "span links are not limited",
        OTEL + "_spans.py",
        "list(contexts.values())[:MAX_LINKS]",
        "list(contexts.values())",
        T_OTEL,
    ),
    Mutant(
        "a propagator may set the Api-Key",
        OTEL + "_spans.py",
        "return check_headers(carrier)",
        "return carrier",
        "tests/otel/test_instrument.py",
    ),
    Mutant(
        "baggage is sent",
        OTEL + "__init__.py",
        "TraceContextTextMapPropagator() if propagate is True",
        "__import__('opentelemetry.propagate').propagate.get_global_textmap() if propagate is True",
        "tests/otel/test_instrument.py",
    ),
    Mutant(
        "users of a closed client are no longer counted",
        OTEL + "_metrics.py",
        "                _count(self._past, source)\n",
        "",
        "tests/otel/test_metrics.py",
    ),
]

SYNC_CODE = [
    Mutant(
        "a child keeps its parent's connections",
        LOOP_THREAD,
        "            os.dup2(devnull, file, inheritable=False)\n",
        "            pass\n",
        T_SYNC + "fork.py",
    ),
    Mutant(
        "an interrupted call continues",
        LOOP_THREAD,
        "            call.task.cancel()",
        "            pass",
        T_SYNC + "interrupts.py",
    ),
    Mutant(
        "a result that its thread did not take is not reported",
        LOOP_THREAD,
        "        if call.done and report is not None:",
        "        if not call.started and report is not None:",
        T_SYNC + "interrupts.py",
    ),
    Mutant(
        "the caller's iterable is read in the event loop",
        LOOP_THREAD,
        "    return in_blocks(iter(lambda: next_block(source), []), request)",
        "    return items",
        T_SYNC + "threads.py",
    ),
    Mutant(
        "the caller's context is lost",
        LOOP_THREAD,
        "self.loop.call_soon_threadsafe(self._begin, call)",
        "self.loop.call_soon_threadsafe(self._begin, call, context=__import__('contextvars').Context())",
        T_SYNC + "threads.py",
    ),
    Mutant(
        "one of two closing threads shortens the drain of the other",
        LOOP_THREAD,
        "        if self.closing:\n            return DrainReport()\n",
        "",
        T_SYNC + "lifetime.py",
    ),
    Mutant(
        "a call in on_event waits for itself",
        LOOP_THREAD,
        "        return self.thread.ident == threading.get_ident()\n",
        "        return False\n",
        T_SYNC + "threads.py",
    ),
    Mutant(
        "a dropped client keeps its thread",
        "pushsdk/sync/client.py",
        "if not thread.is_inherited and thread.close_soon(EXIT_DRAIN):",
        "if not thread.is_inherited:",
        T_SYNC + "lifetime.py",
    ),
]

CLAIMS, T_CLAIMS = "pushsdk/claims/", "tests/claims/test_"
CLAIM_STORES = [
    Mutant(
        "an UNKNOWN is sent again at the next delivery",
        CORE + "idempotency.py",
        "    status = decide(verdict).status\n",
        """    status = decide(verdict).status
    if status.state is UserState.UNKNOWN:
        status = UserStatus(UserState.PENDING)
""",
        T_CLAIMS + "sends.py",
    ),
    Mutant(
        "a part behind a 413 that was never sent is settled as rejected",
        CORE + "decisions.py",
        "(last.outcome is Outcome.REJECTED and verdict.failure is not None)",
        "False",
        "tests/core/test_decisions.py",
    ),
    Mutant(
        "different payloads have the same fingerprint",
        CORE + "idempotency.py",
        'b"%d:" % len(part) + part',
        "part",
        "tests/core/test_idempotency.py",
    ),
    Mutant(
        "a request rejected for one user settles all its users",
        CORE + "decisions.py",
        " or verdict.shared",
        "",
        T_CLAIMS + "sends.py",
    ),
    Mutant(
        "users in another order are another payload",
        RUNS + "keyed.py",
        "tuple(sorted(call.users))",
        "call.users",
        T_CLAIMS + "sends.py",
    ),
    Mutant(
        "a retry by the store takes its own claim for another process's claim",
        CLAIMS + "store.py",
        "return stored.token == self.claim.token or stored.token in self.expected",
        "return stored.token in self.expected",
        T_CLAIMS + "stores.py " + T_CLAIMS + "trouble.py",
    ),
    Mutant(
        "a release opens a send that was settled meanwhile",
        RUNS + "claim_entry.py",
        "self._unconfirmed = Claim(secrets.token_hex(16), record)",
        "self._unconfirmed = Claim((*self._tokens, secrets.token_hex(16))[0], record)",
        T_CLAIMS + "operators.py",
    ),
    Mutant(
        "a file that another process is creating is refused",
        "pushsdk/_sqlite.py",
        '("mode=ro&immutable=1", "mode=ro")',
        '("mode=ro&immutable=1",)',
        "tests/io/test_sqlite.py",
    ),
    Mutant(
        "a release shortens the time that accepted users are remembered",
        CLAIMS + "_operators.py",
        "await store.put(puts, MAX_CLAIM_TTL)",
        "await store.put(puts, store.claim_ttl)",
        T_CLAIMS + "operators.py",
    ),
    Mutant(
        "PostgreSQL takes its own claim for another process's claim after a retry",
        CLAIMS + "postgres.py",
        " OR stored.token = excluded.token",
        "",
        T_CLAIMS + "stores.py",
    ),
    Mutant(
        "puts of the same rows in another order deadlock",
        CLAIMS + "postgres.py",
        "pending = sorted(puts, key=lambda put: put.key)",
        "pending = list(puts)",
        T_CLAIMS + "each_store.py",
    ),
    Mutant(
        "a row deleted between put and read counts as stored",
        CLAIMS + "postgres.py",
        "pending = [put for put in pending if put.key not in stored]",
        "break",
        T_CLAIMS + "each_store.py",
    ),
    Mutant(
        "a late claim that was undone keeps its users claimed",
        RUNS + "claim_entry.py",
        "self._tokens = (*self._tokens, self._unconfirmed.token)",
        "pass",
        T_CLAIMS + "entry.py " + T_CLAIMS + "trouble.py",
    ),
    Mutant(
        "a late claim of the remaining users keeps them claimed",
        RUNS + "claim_entry.py",
        "Put(self.key, self._unconfirmed, self._tokens)",
        "Put(self.key, self._unconfirmed, self._tokens[:1])",
        T_CLAIMS + "entry.py",
    ),
    Mutant(
        "an undo that failed is not retried",
        RUNS + "claim_entry.py",
        "        self.error = error\n        self.is_changed = True\n",
        "        self.error = error\n",
        T_CLAIMS + "trouble.py",
    ),
    Mutant(
        "an outcome that could not be stored is forgotten with its call",
        RUNS + "claim_log.py",
        "not entry.uses and entry.is_written and",
        "not entry.uses and",
        T_CLAIMS + "trouble.py",
    ),
    Mutant(
        "a file that another user owns is trusted",
        IO + "files.py",
        "found.st_uid not in (me, 0)",
        "False",
        "tests/security/test_ownership.py",
    ),
    Mutant(
        "a replaced database is read",
        IO + "files.py",
        "found is None or not os.path.samestat(found, opened)",
        "found is None",
        "tests/security/test_ownership.py",
    ),
    Mutant(
        "a link in place of a folder of claims is followed",
        CLAIMS + "directory.py",
        "_check_owner(os.lstat(folder))",
        "_check_owner(os.stat(folder))",
        "tests/security/test_ownership.py",
    ),
    Mutant(
        "the first send imports the host lookup's codec",
        "pushsdk/_io/engine.py",
        "        import encodings.idna  # noqa: F401 - see above\n",
        "",
        "tests/io/test_forks.py",
    ),
    Mutant(
        "closing the client does not wait for a store that lags behind",
        "pushsdk/_io/engine.py",
        "            items |= self.late\n",
        "            pass\n",
        T_CLAIMS + "trouble.py",
    ),
    Mutant(
        "a claim whose response was lost is not given back",
        RUNS + "claim_entry.py",
        "self._unconfirmed.token)\n        self._release(self._in_write)\n",
        "self._unconfirmed.token)\n",
        T_CLAIMS + "entry.py " + T_CLAIMS + "trouble.py",
    ),
    Mutant(
        "cancelling all tasks leaves unsent users claimed",
        RUNS + "claim_log.py",
        "return self._restarts <= MAX_RESTARTS",
        "return False",
        T_CLAIMS + "trouble.py",
    ),
    Mutant(
        "calls queue behind a silent store",
        RUNS + "claim_log.py",
        "        if isinstance(error, TimeoutError):\n            # A silent",
        "        if False:\n            # A silent",
        T_CLAIMS + "groups.py",
    ),
    Mutant(
        "a claim may expire while its request is in flight",
        RUNS + "claim_log.py",
        "self._store.claim_ttl / 2",
        "self._store.claim_ttl * 2",
        T_CLAIMS + "sends.py",
    ),
    Mutant(
        "a claim takes users of another call's claim in the same write",
        RUNS + "claim_entry.py",
        "                elif own.state is UserState.PENDING:\n                    yield from",
        "                else:\n                    yield from",
        T_CLAIMS + "entry.py",
    ),
    Mutant(
        "a replaced entry does not expect another process's token",
        RUNS + "claim_entry.py",
        "self._others, self._claimed_at, self._tokens = states, record.claimed_at, (stored.token,)",
        "self._others, self._claimed_at, self._tokens = states, record.claimed_at, ()",
        T_CLAIMS + "entry.py",
    ),
    Mutant(
        "a returned claim stays because another process rewrote it",
        RUNS + "claim_entry.py",
        "status.reason == self._claimed.reason",
        "False",
        T_CLAIMS + "entry.py tests/arrow/test_dispatcher.py",
    ),
    Mutant(
        "a withdrawn claim keeps its users claimed",
        RUNS + "claim_entry.py",
        "            if request.withdrawn and error is None:\n",
        "            if False:\n",
        T_CLAIMS + "entry.py " + T_CLAIMS + "trouble.py",
    ),
    Mutant(
        "a failed claim opens users whose last outcome was UNKNOWN",
        RUNS + "claim_entry.py",
        "_UNKNOWN if own.resent else _PENDING",
        "_PENDING",
        T_CLAIMS + "entry.py",
    ),
    Mutant(
        "a resend takes users whom another process sent to",
        RUNS + "claim_entry.py",
        """                if own.state is UserState.UNKNOWN and request.resends:
                    yield from self._of_others(low, high, UserState.PENDING, UserState.UNKNOWN)
""",
        """                if own.state is UserState.UNKNOWN and request.resends:
                    yield low, high
""",
        T_CLAIMS + "conflicts.py",
    ),
    Mutant(
        "the record of another payload is replaced",
        RUNS + "claim_entry.py",
        "        self._tokens, self._unconfirmed, self.failures = (), None, 0\n",
        "        self._tokens, self._unconfirmed, self.failures = (stored.token,), None, 0\n",
        T_CLAIMS + "conflicts.py",
    ),
    Mutant(
        "a rejection replaces the claim of another process",
        RUNS + "claim_entry.py",
        "UserState.REJECTED: frozenset({UserState.ACCEPTED, UserState.CLAIMED, UserState.UNKNOWN}),",
        "UserState.REJECTED: frozenset({UserState.ACCEPTED}),",
        "tests/arrow/test_dispatcher.py",
    ),
    Mutant(
        "an attempt that could not be claimed makes the previous attempt NOT_SENT",
        RUNS + "keyed.py",
        "        self._verdict = verdict\n",
        "",
        T_CLAIMS + "conflicts.py",
    ),
    Mutant(
        "a body that is written twice is claimed twice",
        IO + "transport.py",
        "        claim, self._claim = self._claim, None\n",
        "        claim = self._claim\n",
        T_CLAIMS + "conflicts.py",
    ),
    Mutant(
        "the rate limiter refunds a rejected attempt",
        IO + "sender.py",
        "request.failure is Failure.UNCLAIMED and request.own == own",
        "request.failure is Failure.UNCLAIMED",
        T_CLAIMS + "conflicts.py",
    ),
    Mutant(
        "the outcome of a call overwrites another process's record",
        RUNS + "claim_entry.py",
        "[(low, high)] if is_own else list(self._of_others(low, high, UserState.PENDING))",
        "[(low, high)]",
        T_CLAIMS + "entry.py",
    ),
    Mutant(
        "the claims of a batch are separate writes",
        RUNS + "claim_log.py",
        "if not entry.failures), self._store.at_once)",
        "if not entry.failures), 1)",
        T_CLAIMS + "groups.py",
    ),
    Mutant(
        "an entry that the store never accepts blocks the others",
        RUNS + "claim_log.py",
        "        if first.failures >= TRIES:\n",
        "        if False:\n",
        T_CLAIMS + "groups.py",
    ),
    Mutant(
        "users claimed by another process are sent with the others",
        RUNS + "keyed.py",
        "        if len(claimed) == len(unit.users):\n",
        "        if granted:\n",
        T_CLAIMS + "sends.py",
    ),
    Mutant(
        "a request is sent although its claim failed",
        RUNS + "keyed.py",
        """            keyed.error = claim_error(request.error)
            self._pending.settle(call, unit.users, msgspec.structs.replace(self._verdict, failure=Failure.UNCLAIMED))
            return None
""",
        "            return segment\n",
        T_CLAIMS + "trouble.py",
    ),
    Mutant(
        "a claim made after its attempt has ended is kept",
        RUNS + "keyed.py",
        "                request.entry.withdraw(request)\n",
        "                pass\n",
        T_CLAIMS + "trouble.py",
    ),
    Mutant(
        "a call that was not sent does not report the record",
        RUNS + "keyed.py",
        "if not keyed.has_asked and",
        "if False and",
        T_CLAIMS + "sends.py",
    ),
    Mutant(
        "users are claimed before the connection is open",
        IO + "fast_post.py",
        "            connection = await self._connector.connect(head.request, [], timeout)\n",
        """            body = body if claim is None else (await claim() or body)
            connection = await self._connector.connect(head.request, [], timeout)
""",
        "tests/io/test_claim_hook.py",
    ),
    Mutant(
        "a connection that closed during the claim is written to",
        IO + "fast_post.py",
        """            if claim is not None:
                body = await claimed(claim)
            check_stale(protocol, evidence)
""",
        """            check_stale(protocol, evidence)
            if claim is not None:
                body = await claimed(claim)
""",
        "tests/io/test_claim_hook.py",
    ),
    Mutant(
        "a shortened body does not match its Content-Length",
        IO + "transport.py",
        "body.ljust(len(self._value))",
        "body",
        "tests/io/test_claim_hook.py",
    ),
    Mutant(
        "a mock answers a request that was never claimed",
        IO + "transport.py",
        "                if claim is not None and not is_own(",
        "                if False and not is_own(",
        "tests/io/test_claim_hook.py",
    ),
    Mutant(
        "the claim of a cancelled request is never settled",
        IO + "sender.py",
        """            if request.claim is not None:
                request.claim.settle(request.verdict())
            raise
""",
        "            raise\n",
        T_CLAIMS + "sends.py " + T_CLAIMS + "trouble.py",
    ),
    Mutant(
        "a request whose claim was refused counts as an attempt",
        IO + "sender.py",
        "                    request.failure = failure\n                    return False\n",
        "                    request.failure = failure\n",
        T_CLAIMS + "sends.py " + T_CLAIMS + "trouble.py",
    ),
    Mutant(
        "the fake service keeps a request whose claim was refused",
        "pushsdk/testing/service.py",
        "            if not request._is_sent:\n",
        "            if False:\n",
        "tests/testing/test_fake_service.py",
    ),
    Mutant(
        "a request whose claim was refused uses up the next response",
        "pushsdk/testing/service.py",
        "                self._responses[:0] = filter(None, [scripted])\n",
        "",
        "tests/testing/test_fake_service.py",
    ),
    Mutant(
        "a settled claim never expires in Redis",
        CLAIMS + "redis.py",
        "redis.call('SET', key, value, 'PX', ARGV[1])",
        "redis.call('SET', key, value)",
        T_CLAIMS + "stores.py " + T_CLAIMS + "each_store.py",
    ),
    Mutant(
        "SQLite returns an expired claim",
        CLAIMS + "sqlite.py",
        'WHERE key = ? AND expires > ?"\n_PUT',
        'WHERE key = ? AND expires > ? - 9e9"\n_PUT',
        T_CLAIMS + "stores.py",
    ),
]

TESTING = [
    Mutant(
        "a fault that never fired passes if the test expected an error",
        "pushsdk/testing/inbox.py",
        "            self.pending_failure = self._never_fired(idle)  # in case the test expects the error\n"
        "            error.add_note(self.pending_failure)",
        "            error.add_note(self._never_fired(idle))",
        "tests/testing/test_plugin.py",
    ),
    Mutant(
        "a fault outside a with block passes",
        "pushsdk/testing/inbox.py",
        "self._never_used() if required else None",
        "None",
        "tests/testing/test_plugin.py",
    ),
    Mutant(
        "one fired fault counts for all",
        "pushsdk/testing/inbox.py",
        "len(counts) - len(idle) >= self._required",
        "len(counts) > len(idle)",
        "tests/testing/test_push_inbox.py",
    ),
    Mutant(
        "an inbox shows the pushes of the previous test",
        "pushsdk/testing/plugin.py",
        'f"test-{secrets.token_hex(8)}"',
        '"test"',
        "tests/testing/test_plugin.py",
    ),
    Mutant(
        "a test leaves the clock advanced",
        "pushsdk/testing/inbox.py",
        "            self.advance(-self._ahead)",
        "            self._ahead = 0.0",
        "tests/testing/test_push_inbox.py",
    ),
    Mutant(
        "wait_for counts refused requests",
        "pushsdk/testing/inbox.py",
        "    if not parse(search).names_fate:",
        "    if False:",
        "tests/testing/test_push_inbox.py",
    ),
    Mutant(
        "a reset of the fake service counts as accepted",
        "pushsdk/testing/service.py",
        "return FakeResponse(failure=Failure.RESET, after=after)",
        "return FakeResponse(failure=Failure.RESET, accepted=True, after=after)",
        "tests/testing/test_fake_service.py",
    ),
]

EXEC = [
    Mutant(
        "a comment in a block of code is a heading of the guide",
        "pushsdk/docs/__init__.py",
        'if line.startswith("#") and not fenced:',
        'if line.startswith("#"):',
        "tests/cli/test_docs_command.py",
    ),
    Mutant(
        "the guide reads any file",
        "pushsdk/docs/__init__.py",
        'path = {path.stem: path for path in FOLDER.glob("*.md")}[name]',
        'path = FOLDER / f"{name}.md"',
        "tests/cli/test_docs_command.py",
    ),
    Mutant(
        "exec returns a negative code for a signal",
        "pushsdk/cli/commands/emulator.py",
        "return code if code >= 0 else 128 - code",
        "return code",
        "tests/cli/test_emulator_command.py",
    ),
    Mutant(
        "Ctrl-C reaches exec's command twice",
        "pushsdk/cli/commands/emulator.py",
        "elif not (signal.Signals(number).name in _FROM_KEYS and _in_foreground()):",
        "else:",
        "tests/cli/test_emulator_command.py",
    ),
    Mutant(
        "exec loses a signal that arrives before its command starts",
        "pushsdk/cli/commands/emulator.py",
        "            early.append(number)",
        "            pass",
        "tests/cli/test_emulator_command.py::test_a_signal_that_comes_before_the_command_runs_is_not_lost",
    ),
]

SPARK, T_SPARK = "pushsdk/spark/", "tests/engines/test_"

BY_SPARK = [
    Mutant(
        "a row without an id is a user",
        SPARK + "_tasks.py",
        "waiting.append(batch.filter(pc.and_not(pc.is_valid(ids), is_empty)))",
        "waiting.append(batch.filter(pc.is_valid(ids)))",
        T_SPARK + "chunks.py",
    ),
    Mutant(
        "rows that were already partitioned are partitioned again",
        SPARK + "_tasks.py",
        "waiting = table.slice(whole * max_users).to_batches()",
        "waiting = table.to_batches()",
        T_SPARK + "chunks.py",
    ),
    Mutant(
        "a Spark run is sent without its claims",
        SPARK + "_folder.py",
        "return call_store(make, lambda store: store.get([digest_of(run)])) != [None]",
        "return True",
        "tests/engines/test_folder.py",
    ),
    Mutant(
        "an undecided user counts as decided, and others are blamed",
        RUNS + "sender.py",
        "        return verdict is not None\n",
        "        return True\n",
        "tests/arrow/test_dispatcher.py",
    ),
    Mutant(
        "a Spark run is resumed after its claims have expired",
        SPARK + "_preflight.py",
        "if age > kept / 2:",
        "if False:",
        T_SPARK + "folder.py",
    ),
    Mutant(
        "a Spark run is resumed with another claim store",
        SPARK + "_preflight.py",
        '    "claims": "another claim store",\n',
        "",
        T_SPARK + "folder.py",
    ),
    Mutant(
        "a report recreates expired claims",
        SPARK + "_folder.py",
        "if not folder.claims.is_dir() or not has_sentinel(",
        "if not has_sentinel(",
        T_SPARK + "status.py",
    ),
    Mutant(
        "users claimed in a running broadcast count as never sent",
        CORE + "decisions.py",
        "UserState.CLAIMED: Outcome.UNKNOWN,",
        "UserState.CLAIMED: Outcome.NOT_SENT,",
        "tests/arrow/test_outcomes.py",
    ),
    Mutant(
        "a previous attempt's report counts for a failed attempt",
        SPARK + "_folder.py",
        "if path.name.isdecimal()]",
        'if path.name.isdecimal() and path.with_suffix(".json").exists()]',
        T_SPARK + "status.py",
    ),
    Mutant(
        "every task starts as the first of the tasks that share a rate",
        SPARK + "_preflight.py",
        "msgspec.structs.replace(rate, index=number)",
        "rate",
        T_SPARK + "preflight.py",
    ),
    Mutant(
        "two drivers share a folder",
        SPARK + "_folder.py",
        'release = lock(self.path / "lock")',
        "release = lambda: None",
        T_SPARK + "folder.py",
    ),
    Mutant(
        "each task has the full rate",
        SPARK + "_preflight.py",
        "None if value is None else value / tasks",
        "value",
        T_SPARK + "preflight.py",
    ),
    Mutant(
        "speculative execution is allowed",
        SPARK + "_preflight.py",
        '(settings.get("spark.speculation") or "false").lower() == "true"',
        "False",
        T_SPARK + "preflight.py",
    ),
]

ARROW, T_ARROW = "pushsdk/arrow/", "tests/arrow/test_"
BY_ARROW = [
    Mutant(
        "two writers of the same version of a directory claim both succeed",
        CLAIMS + "directory.py",
        "st_nlink == 1",
        "st_nlink == 0",
        T_CLAIMS + "directory.py tests/claims/test_stores.py",
    ),
    Mutant(
        "a link whose response was lost counts as another process's link",
        CLAIMS + "directory.py",
        "            if os.stat(temporary).st_nlink == 1:\n                return False\n",
        "            return False\n",
        T_CLAIMS + "directory.py",
    ),
    Mutant(
        "work whose thread could not start runs later",
        "pushsdk/_io/threads.py",
        """                if not self._count:
                    raise
        self._todo.put(work)
""",
        """                if not self._count:
                    self._todo.put(work)
                    raise
        self._todo.put(work)
""",
        T_CLAIMS + "blocking.py",
    ),
    Mutant(
        "a claim is linked before it is synced",
        CLAIMS + "directory.py",
        "                if self._durable:\n                    os.fsync(descriptor)\n",
        "",
        T_CLAIMS + "directory.py",
    ),
    Mutant(
        "users reported as NOT_SENT stay claimed if the store failed to give them back",
        ARROW + "_dispatcher.py",
        "            if chunk.pending() and entry.error is not None and not entry.is_written:\n",
        "            if False:\n",
        T_ARROW + "dispatcher.py",
    ),
    Mutant(
        "clients that share a rate start at the same time",
        CORE + "rate_limit.py",
        "now + part * self._cost(users)",
        "now",
        T_ARROW + "dispatcher.py",
    ),
    Mutant(
        "users given back by another process during a chunk are not sent",
        ARROW + "_dispatcher.py",
        """                await self._claims.written(entry, self._claims.deadline())
        if chunk.pending():
""",
        "                pass\n        if chunk.pending():\n",
        T_ARROW + "dispatcher.py",
    ),
    Mutant(
        "a chunk's request may outlive its claim",
        ARROW + "_dispatcher.py",
        "return self._claims.deadline()",
        "return self._claims.deadline() + 30",
        T_ARROW + "dispatcher.py",
    ),
    Mutant(
        "a request in flight is given back when it is cancelled",
        RUNS + "sender.py",
        "if verdict.failure is Failure.UNCLAIMED:\n            return",
        "if verdict.failure in (Failure.UNCLAIMED, Failure.CANCELLED):\n            return",
        T_ARROW + "dispatcher.py",
    ),
    Mutant(
        "users reached by another process are sent again",
        RUNS + "claim_entry.py",
        "            if other.state in states:\n                yield low, high\n",
        "            yield low, high\n",
        T_CLAIMS + "entry.py tests/arrow/test_dispatcher.py",
    ),
    Mutant(
        "an accepted push of another process is reported with a later outcome",
        RUNS + "claim_entry.py",
        "if other.state not in _OUTRANKS.get(status.state, _ACCEPTED):",
        "if other.state not in _OUTRANKS.get(status.state, ()):",
        T_CLAIMS + "entry.py",
    ),
    Mutant(
        "a chunk is sent although the run stopped during the claim",
        RUNS + "sender.py",
        "if not self.users or self._sender.stop_reason is not None:",
        "if not self.users:",
        T_ARROW + "dispatcher.py",
    ),
    Mutant(
        "claimed users of another process are sent with the others",
        ARROW + "_dispatcher.py",
        "return claimed, request.ids if claimed == users.users else chunk.ids(claim.claimed)",
        "return claimed, request.ids",
        T_ARROW + "dispatcher.py",
    ),
    Mutant(
        "a chunk that can't be claimed is skipped silently",
        ARROW + "_dispatcher.py",
        "            chunk.error = claim_error(claim.error)\n",
        "            chunk.is_left_pending = True\n",
        T_ARROW + "dispatcher.py",
    ),
    Mutant(
        "skipping recorded users costs rate",
        IO + "sender.py",
        "                self.limiter.rate_limiter.refund(request.users)\n",
        "",
        T_CLAIMS + "sends.py",
    ),
    Mutant(
        "idle time counts as an outage",
        RUNS + "sender.py",
        "max(0.0, gap - 2 * TICK) if self._deliveries else gap",
        "max(0.0, gap - 2 * TICK) if self._deliveries else 0.0",
        T_ARROW + "dispatcher.py",
    ),
    Mutant(
        "chunks pile up for a slow consumer",
        ARROW + "_dispatcher.py",
        "len(self._in_work) + self._outcomes.qsize() <",
        "len(self._in_work) <",
        T_ARROW + "lifetime.py",
    ),
    Mutant(
        "a user's fields are not part of the fingerprint",
        ARROW + "_chunks.py",
        "fingerprint_of(_key(self._run, chunk_id), self._base_url, payloads)",
        'fingerprint_of(_key(self._run, chunk_id), self._base_url, [(each[0], b"", None) for each in payloads])',
        T_ARROW + "chunks.py",
    ),
    Mutant(
        "an error of the input aborts requests in flight",
        ARROW + "_dispatcher.py",
        "        if self._failure is None:\n            self._failure = error\n",
        "        if self._failure is None:\n            self._failure = error\n            self._outcomes.put(None)\n",
        T_ARROW + "lifetime.py",
    ),
    Mutant(
        "an abandoned generator leaves its thread running",
        ARROW + "_push.py",
        "            (thread.close_soon if thread.is_current else thread.close)(DRAIN)\n",
        "            pass\n",
        T_ARROW + "lifetime.py",
    ),
]

T_FORKS = "tests/io/test_forks.py"
FORKS = [
    Mutant(
        "a child uses its parent's objects",
        IO + "forks.py",
        "return self._process != os.getpid()",
        "return False",
        T_FORKS,
    ),
    Mutant(
        "a child's cleanup keeps its owner alive",
        IO + "forks.py",
        "= WeakKeyDictionary()",
        "= {}",
        T_FORKS,
    ),
    Mutant(
        "a child repeats what its parent has handed out",
        LOOP_THREAD,
        "            call.callbacks = SimpleQueue()  # the parent calls what is queued\n",
        "",
        "tests/arrow/test_lifetime.py",
    ),
]

T_BLOCKING = T_CLAIMS + "blocking.py"
BLOCKING = [
    Mutant(
        "the claims directory is closed during an operation",
        CLAIMS + "_blocking.py",
        "    wait(pending)\n",
        "",
        T_BLOCKING,
    ),
    Mutant(
        "an unclosed claim store keeps its threads",
        CLAIMS + "_blocking.py",
        "        weakref.finalize(self, self._threads.shutdown).atexit = False\n",
        "",
        T_BLOCKING,
    ),
]

MUTANTS = [
    *OUTCOME,
    *POLICY,
    *BUDGET,
    *SPLITTING,
    *PACING,
    *BRAKE,
    *COALESCING,
    *SENDING,
    *TRANSPORT,
    *RUN_FILE,
    *KILLS,
    *RUNNING,
    *COMMANDS,
    *AUDIENCE,
    *EMULATOR_RULES,
    *EMULATOR_CONTROL,
    *EMULATOR_BOUNDS,
    *EMULATOR_STORE,
    *SEGMENTS,
    *TESTING,
    *EXEC,
    *TELEMETRY,
    *SYNC_CODE,
    *CLAIM_STORES,
    *FORKS,
    *BLOCKING,
    *BY_ARROW,
    *BY_SPARK,
]
