"""The bugs that ``mutate`` plants, and the tests that have to find each.

``old`` stands in ``file`` exactly once; ``tests`` are paths as pytest takes them, those that fail fastest first.
"""

from __future__ import annotations

from typing import NamedTuple


class Mutant(NamedTuple):
    """One bug: what it is, where, and who finds it."""

    name: str
    file: str
    old: str
    new: str
    tests: str


CORE, IO, RUNS = "pushsdk/_core/", "pushsdk/_io/", "pushsdk/_broadcast/"
OTEL, T_OTEL = "pushsdk/otel/", "tests/otel/test_spans.py"
SYNC, T_SYNC = "pushsdk/_sync/", "tests/sync/test_"
EMULATOR, T_EMULATOR = "pushsdk/emulator/", "tests/emulator/test_"
T_OUTCOME = "tests/core/test_outcome.py"
T_POLICY = "tests/core/test_policy.py"
T_ERRORS = "tests/core/test_explain_and_errors.py"
T_SPLITTING = "tests/core/test_splitting.py"
T_PACING = "tests/core/test_pacing.py"
T_BRAKE = "tests/core/test_brake.py"
T_BATCHING = "tests/core/test_batching.py"
T_ENDPOINT = "tests/core/test_endpoint.py"
T_MODEL = "tests/model"
T_CALLS = "tests/io/test_coalescing.py tests/io tests/model"
T_REQUESTS = "tests/io/test_retrying.py tests/io tests/model"
T_KILL = "tests/broadcast/test_kill.py::test_a_small_run_survives_its_kills"
T_EDGES = "tests/broadcast/test_run_edges.py"
T_AUDIENCE = "tests/broadcast/test_audience.py"
T_DISTINCT = "tests/broadcast/test_distinct.py"
T_TABLES = "tests/broadcast/test_audience_tables.py"
T_JOURNAL = "tests/broadcast/test_journal_"
T_WIRE = "tests/io/test_transport.py tests/faults/test_matrix.py"

OUTCOME = [
    Mutant(
        "a 502 is a rejection",
        CORE + "outcome.py",
        'Rule(501, 501, Outcome.REJECTED, False, "not implemented")',
        'Rule(501, 502, Outcome.REJECTED, False, "not implemented")',
        T_OUTCOME,
    ),
    Mutant(
        "any 503 is a rejection to be repeated",
        CORE + "outcome.py",
        "and (retry_after is not None or not row.needs_retry_after)",
        "",
        T_OUTCOME,
    ),
    Mutant(
        "the join prefers REJECTED over UNKNOWN",
        CORE + "outcome.py",
        "_JOIN = (Outcome.ACCEPTED, Outcome.UNKNOWN, Outcome.REJECTED)",
        "_JOIN = (Outcome.ACCEPTED, Outcome.REJECTED, Outcome.UNKNOWN)",
        T_OUTCOME,
    ),
    Mutant(
        "a 2xx is believed though the request was not written whole",
        CORE + "outcome.py",
        "if outcome is Outcome.ACCEPTED and evidence.touched and not evidence.written:",
        "if False:",
        T_OUTCOME,
    ),
    Mutant(
        "so is a 204, on the short way",
        CORE + "outcome.py",
        "if evidence.written and evidence.status == 204 and not statuses:",
        "if evidence.status == 204 and not statuses:",
        T_OUTCOME,
    ),
    Mutant(
        "a stray answer is taken for the answer",
        CORE + "outcome.py",
        "if evidence.touched and not evidence.started_writing:",
        "if False:",
        T_OUTCOME,
    ),
    Mutant(
        "a disconnect after the first byte is not sent",
        CORE + "outcome.py",
        "if evidence.started_writing or not (",
        "if not (",
        T_OUTCOME,
    ),
    Mutant(
        "any exception of a mock is not sent",
        CORE + "outcome.py",
        "if evidence.started_writing or not (evidence.touched or evidence.failure in PROVEN_BY_TYPE):",
        "if evidence.started_writing:",
        T_OUTCOME,
    ),
]

POLICY = [
    Mutant(
        "an UNKNOWN is repeated by default",
        CORE + "policy.py",
        'return cls(unknown="raise", **numbers)',
        'return cls(unknown="repeat", **numbers)',
        T_POLICY,
    ),
    Mutant(
        "an UNKNOWN is repeated without a collapse id",
        CORE + "policy.py",
        '(self.unknown == "repeat_if_collapsible" and collapsible)',
        'self.unknown == "repeat_if_collapsible"',
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
        "a Retry-After has no jitter on top",
        CORE + "policy.py",
        "return (attempt.retry_after or 0.0) + jitter",
        "return max(attempt.retry_after or 0.0, jitter)",
        T_POLICY,
    ),
    Mutant(
        "a shorter pause shortens a longer one",
        CORE + "pacing.py",
        "self.paused_until = max(self.paused_until, until)",
        "self.paused_until = until",
        "tests/core/test_pacing.py",
    ),
    Mutant(
        "a Retry-After in the past is negative",
        CORE + "pacing.py",
        "return max(0.0, when.timestamp() - wall_clock)",
        "return when.timestamp() - wall_clock",
        "tests/core/test_pacing.py",
    ),
]

BUDGET = [
    Mutant("a retry costs nothing", CORE + "budget.py", "self.tokens -= COST", "pass", "tests/core/test_budget.py"),
    Mutant(
        "the budget never refuses",
        CORE + "budget.py",
        "if self.tokens < COST:",
        "if False:",
        "tests/core/test_budget.py",
    ),
    Mutant(
        "the budget is filled without end",
        CORE + "budget.py",
        "if self.tokens < CAPACITY:",
        "if True:",
        "tests/core/test_budget.py",
    ),
    Mutant(
        "every success is refunded, not only on the first try",
        IO + "sender.py",
        "if not await sender._attempt(job):\n            raise error_for(job.verdict())",
        "if await sender._attempt(job):\n            sender.budget.refund()\n            return\n"
        "        raise error_for(job.verdict())",
        T_REQUESTS,
    ),
    Mutant(
        "a retry is not paid for",
        IO + "sender.py",
        "elif not sender.budget.spend():",
        "elif False:",
        "tests/faults/test_waits.py " + T_MODEL,
    ),
]

SPLITTING = [
    Mutant(
        "an UNKNOWN is split",
        CORE + "splitting.py",
        "elif verdict.outcome is Outcome.REJECTED and verdict.status in self._split_on:",
        "elif verdict.status in self._split_on:",
        T_SPLITTING,
    ),
    Mutant(
        "the second half loses a call",
        CORE + "splitting.py",
        "Piece.of(self.segments[middle:], history)",
        "Piece.of(self.segments[middle + 1 :] or self.segments[middle:], history)",
        T_SPLITTING,
    ),
    Mutant("it never gives up", CORE + "splitting.py", "GIVE_UP_AFTER = 3", "GIVE_UP_AFTER = 10**9", T_SPLITTING),
    Mutant(
        "it gives up without a look at the far corner",
        CORE + "splitting.py",
        "far = self._failed and not self._accepted",
        "far = False",
        T_SPLITTING,
    ),
    Mutant(
        "a half forgets what was tried before",
        CORE + "splitting.py",
        "piece.halves(verdict.attempts, within_calls=False)",
        "piece.halves((), within_calls=False)",
        T_SPLITTING,
    ),
    Mutant(
        "what was learned is ignored on the way out",
        CORE + "splitting.py",
        "if sizes.fits(whole.users, frame, len(whole.ids)):",
        "if True:",
        T_SPLITTING,
    ),
    Mutant(
        "all that is sent while a trial is due is a trial",
        CORE + "splitting.py",
        "self._trial = (users, size)\n        self.forget(max_users, max_bytes)",
        "self._trial = (users, size)",
        T_SPLITTING,
    ),
    Mutant(
        "a trial that failed is soon repeated",
        CORE + "splitting.py",
        "self._every = min(self._every * 2, TRIAL_AFTER_AT_MOST)",
        "pass",
        T_SPLITTING,
    ),
    Mutant(
        "a trial that failed halves the bound",
        CORE + "splitting.py",
        "if (users, frame + ids) == self._trial:",
        "if False:",
        T_SPLITTING,
    ),
    Mutant(
        "the larger half of what failed does not fit",
        CORE + "splitting.py",
        "half, size = (users + 1) // 2, frame + ids // 2 + ids // 16",
        "half, size = max(1, users // 2), frame + ids // 2",
        T_SPLITTING,
    ),
    Mutant(
        "more users are tried before more bytes",
        CORE + "splitting.py",
        "if users > max_users and not self._passed_on:",
        "if False:",
        T_SPLITTING,
    ),
    Mutant(
        "a larger size is never tried again",
        CORE + "splitting.py",
        "if self._accepted >= self._every:",
        "if False:",
        T_SPLITTING,
    ),
    Mutant(
        "nothing is learned from a 413",
        CORE + "splitting.py",
        "self.sizes.learn(piece.users, self._frame, len(piece.ids))",
        "pass",
        T_SPLITTING,
    ),
    Mutant(
        "the halving goes on where nothing is small enough",
        CORE + "splitting.py",
        "if self._smallest_failed and not self._accepted:",
        "if False:",
        T_SPLITTING,
    ),
    Mutant(
        "what was given up is told to nobody",
        CORE + "splitting.py",
        "left = [*self._large, *self._suspects]",
        "left: list[Settled] = []",
        T_SPLITTING,
    ),
]

PACING = [
    Mutant(
        "what was under way at a decrease decreases again",
        CORE + "pacing.py",
        "elif started < self._since or now < self._decreased + ONE_EVENT:",
        "elif now < self._decreased + ONE_EVENT:",
        T_PACING,
    ),
    Mutant(
        "a quota that is used up decreases the rate with each throttle",
        CORE + "pacing.py",
        "elif started < self._since or now < self._decreased + ONE_EVENT:",
        "elif started < self._since:",
        T_PACING,
    ),
    Mutant(
        "the rate is never let go",
        CORE + "pacing.py",
        "if not self._peak or seconds >= OFF_AFTER:",
        "if not self._peak:",
        T_PACING,
    ),
    Mutant(
        "the rate has no floor",
        CORE + "pacing.py",
        "return max(FLOOR, self._peak *",
        "return max(0.0, self._peak *",
        T_PACING,
    ),
    Mutant(
        "the rate does not rise",
        CORE + "pacing.py",
        "max(0.0, seconds) / BACK_AFTER) ** 5",
        "0.0) ** 5",
        T_PACING,
    ),
    Mutant(
        "the rate rises during a pause",
        CORE + "pacing.py",
        "self._since = max(self._since, until)",
        "pass",
        T_PACING,
    ),
    Mutant(
        "the adaptive rate replaces a fixed one",
        CORE + "pacing.py",
        "due = max(due, max(before, now - SLACK) + 1.0 / rate)",
        "due = max(before, now - SLACK) + 1.0 / rate",
        T_PACING,
    ),
    Mutant(
        "a rate far above what is sent is believed",
        CORE + "pacing.py",
        "left *= min(1.0, max(self._before, self._starts) / rate)",
        "pass",
        T_PACING,
    ),
    Mutant(
        "a client with few starts is paced to them by one throttle",
        CORE + "pacing.py",
        "max(BEGIN_AT_LEAST, self._before, self._starts)",
        "max(1.0, self._before, self._starts)",
        T_PACING,
    ),
    Mutant(
        "a limit far below the rate is come down to in small steps",
        CORE + "pacing.py",
        "left = min(left, through / self._started)",
        "pass",
        T_PACING,
    ),
    Mutant(
        "an outage tells a rate",
        CORE + "pacing.py",
        "if through > 1:",
        "if self._started:",
        T_PACING,
    ),
    Mutant(
        "one throttle may leave nothing of the rate",
        CORE + "pacing.py",
        "return max(STEEPEST, left)",
        "return left",
        T_PACING,
    ),
    Mutant(
        "throttles of earlier events count for each decrease",
        CORE + "pacing.py",
        "        self._started = self._refused = 0\n\n    def _left",
        "        self._started = 0\n\n    def _left",
        T_PACING,
    ),
]

BRAKE = [
    Mutant(
        "a refused key is one failure of many",
        CORE + "brake.py",
        "REFUSED_KEYS.get(status or 0) or self._too_many()",
        "self._too_many()",
        T_BRAKE,
    ),
    Mutant(
        "a share is of the whole run",
        CORE + "brake.py",
        "if window.users >= self._brake.after and window.requests >= FEWEST_REQUESTS:",
        "if False:",
        T_BRAKE,
    ),
    Mutant(
        "two requests prove a share",
        CORE + "brake.py",
        "and before.requests + filling.requests >= FEWEST_REQUESTS:",
        "and before.requests + filling.requests >= 2:",
        T_BRAKE,
    ),
    Mutant(
        "requests count, not users",
        CORE + "brake.py",
        "window.failed[outcome] += users",
        "window.failed[outcome] += 1",
        T_BRAKE,
    ),
    Mutant(
        "a long pause is an outage",
        CORE + "brake.py",
        "now - max(self._heard_at, paused_until) >= limit",
        "now - self._heard_at >= limit",
        T_BRAKE,
    ),
    Mutant(
        "pauses without end hold a run for ever",
        CORE + "brake.py",
        "self._too_many() or self._outage(now, _in_words(status))",
        "self._too_many()",
        T_BRAKE,
    ),
    Mutant(
        "an acceptance does not end an outage",
        CORE + "brake.py",
        "self._accepted_at = self._heard_at = now\n        else:",
        "self._heard_at = now\n        else:",
        T_BRAKE,
    ),
]

COALESCING = [
    Mutant(
        "the same user is merged twice",
        CORE + "batching.py",
        "if len(taken) < users:",
        "if False:",
        T_BATCHING,
    ),
    Mutant(
        "a batch grows over max_users",
        CORE + "batching.py",
        "if users > self.max_users or",
        "if",
        T_BATCHING,
    ),
    Mutant(
        "what was learned is ignored on the way in",
        CORE + "batching.py",
        "if sizes.users != self._learned_users or sizes.bytes != self._learned_bytes:",
        "if False:",
        T_BATCHING,
    ),
    Mutant(
        "calls of unequal policies meet",
        "pushsdk/client.py",
        "Content(encoded, fields, options)",
        "Content(encoded, fields, self._options)",
        T_CALLS,
    ),
    Mutant(
        "calls of unequal custom fields meet",
        "pushsdk/client.py",
        "Content(encoded, fields, options)",
        "Content(encoded, None, options)",
        T_CALLS,
    ),
    Mutant(
        "the followers' users are lost",
        IO + "delivery.py",
        "pieces = pieces_of(batch.calls, self._sizes, batch.frame)",
        "pieces = pieces_of(batch.calls[:1], self._sizes, batch.frame)",
        T_CALLS,
    ),
    Mutant(
        "a cancelled caller takes the others of its batch along",
        IO + "coalescer.py",
        "self._leave(call, batch, Failure.CANCELLED)\n            if leads",
        "[self._leave(each, batch, Failure.CANCELLED) for each in tuple(batch.calls)]\n            if leads",
        T_CALLS,
    ),
    Mutant(
        "a cancelled leader leaves its batch behind",
        IO + "coalescer.py",
        "            self._leave(call, batch, Failure.CANCELLED)\n            if leads and batch.calls:",
        "            self._leave(call, batch, Failure.CANCELLED)\n            if False:",
        T_CALLS,
    ),
    Mutant(
        "a batch that left is still joined",
        IO + "coalescer.py",
        "batch.started = batch.has_slot = True\n        self._batches.close(batch)",
        "batch.started = batch.has_slot = True",
        T_CALLS,
    ),
    Mutant(
        "a caller does not leave at its deadline",
        IO + "coalescer.py",
        "company.include(call.deadline)",
        "company.include(call.deadline + 3600)",
        T_CALLS,
    ),
    Mutant(
        "one who waits for room does not leave at its deadline",
        IO + "coalescer.py",
        "tick = self._deadlines.add(call, call.deadline)",
        "tick = self._deadlines.add(call, call.deadline + 3600)",
        T_CALLS,
    ),
    Mutant(
        "after the first deadline of a batch its others are forgotten",
        IO + "clock.py",
        "self.include(rest)",
        "self.include(math.inf)",
        "tests/io/test_clock.py",
    ),
    Mutant(
        "a batch leaves its place among the deadlines behind",
        IO + "delivery.py",
        "            batch.company.close()\n",
        "",
        T_CALLS,
    ),
    Mutant(
        "a caller is told of its first part",
        CORE + "batching.py",
        "self.shares = (*self.shares, (users, verdict))\n            return False",
        "self.shares = (*self.shares, (users, verdict))",
        T_BATCHING,
    ),
    Mutant(
        "a call of several users is told the receipt of a call of one",
        IO + "ledger.py",
        "SETTLED if call.repeated or len(users) > 1 else one",
        "one",
        T_CALLS,
    ),
    Mutant(
        "a call is told the receipt of its last part",
        CORE + "batching.py",
        "            told = SETTLED\n",
        "",
        T_CALLS,
    ),
    Mutant(
        "who is cancelled in a crowd is sent to all the same",
        "pushsdk/client.py",
        "engine.coalescer.walk_away(call, batch)",
        "pass",
        T_CALLS,
    ),
    Mutant(
        "a batch takes those along who were told to leave",
        IO + "coalescer.py",
        "for call in [call for call in batch.calls if call.waiter.done()]:",
        "for call in []:",
        T_CALLS,
    ),
    Mutant(
        "a call lingers in a pause that it can't wait out",
        IO + "coalescer.py",
        "if self._sender.closed or self._gate.paused_until > call.deadline:",
        "if False:",
        T_CALLS,
    ),
    Mutant(
        "a client waits for calls that have ended",
        "pushsdk/client.py",
        "engine.coalescer.ledger.end(call)",
        "pass",
        T_CALLS,
    ),
    Mutant(
        "a caller past its deadline is told NOT_SENT while its request is out",
        IO + "coalescer.py",
        "Verdict(outcome=Outcome.UNKNOWN, failure=Failure.DEADLINE)",
        "Verdict(outcome=Outcome.NOT_SENT, failure=Failure.DEADLINE)",
        T_CALLS,
    ),
    Mutant(
        "a place leaks with a cancelled batch",
        IO + "coalescer.py",
        "if batch is not None and not batch.shared:\n            self._delivery.give_back(batch)",
        "",
        T_CALLS,
    ),
    Mutant(
        "how an abandoned send ended is not kept",
        IO + "ledger.py",
        "self.abandoned.append(event)",
        "pass",
        T_CALLS,
    ),
    Mutant(
        "the backlog is not given back",
        IO + "coalescer.py",
        "self._batches.close(batch)\n        self._backlog.leave(batch.users, batch.size)",
        "self._batches.close(batch)",
        T_CALLS,
    ),
]

SENDING = [
    Mutant(
        "a place leaks with a cancelled wait for it",
        IO + "slots.py",
        "and self._future.result() is None:\n                slots.release()",
        "and self._future.result() is None:\n                pass",
        T_REQUESTS,
    ),
    Mutant(
        "a pause holds nothing back",
        IO + "sender.py",
        "self._slots.pause(until)",
        "pass",
        "tests/faults/test_waits.py",
    ),
    Mutant(
        "a Retry-After of any length is waited for",
        IO + "sender.py",
        "elif self.at_least() > job.policy.max_retry_after:",
        "elif False:",
        "tests/faults/test_waits.py",
    ),
    Mutant(
        "a wait may end after the deadline",
        IO + "sender.py",
        "elif sender._loop.time() + wait >= job.deadline:",
        "elif False:",
        "tests/faults/test_waits.py " + T_MODEL,
    ),
    Mutant(
        "an attempt knows no deadline",
        IO + "sender.py",
        "limit = job.deadline\n",
        "limit = job.deadline + 3600\n",
        "tests/faults/test_closing.py",
    ),
    Mutant(
        "a stale connection is not replaced",
        IO + "sender.py",
        "if evidence.failure is Failure.STALE and self._may_replace(job):",
        "if False:",
        T_REQUESTS,
    ),
    Mutant(
        "a refused key is asked for again and again",
        IO + "sender.py",
        "if job.rekeyed or self._credentials.fixed is not None:",
        "if self._credentials.fixed is not None:",
        T_REQUESTS,
    ),
    Mutant(
        "a cancellation is repeated like a failure",
        IO + "retrying.py",
        "if state.outcome is None or not isinstance(state.outcome.exception(), PushError):",
        "if state.outcome is None:",
        T_REQUESTS,
    ),
    Mutant(
        "a cancellation from outside is swallowed at a deadline",
        IO + "clock.py",
        "return task.uncancel() <= self._cancelling and kind is asyncio.CancelledError",
        "task.uncancel()\n        return kind is asyncio.CancelledError",
        T_REQUESTS,
    ),
    Mutant(
        "a cancelled send keeps its task alive for ever",
        IO + "clock.py",
        "task, self._task = self._task, None",
        "task = self._task",
        "tests/io/test_cancellation.py",
    ),
    Mutant(
        "deadlines are kept to half a second",
        IO + "clock.py",
        "TICKS_PER_SECOND = 250",
        "TICKS_PER_SECOND = 2",
        "tests/faults/test_closing.py " + T_MODEL,
    ),
]

TRANSPORT = [
    Mutant(
        "a pooled connection is not looked at before the first byte",
        IO + "exchange.py",
        "if protocol.should_close or (evidence.reused and (poll(0) or protocol.writing_paused)):",
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
        "an exchange does not say that it writes",
        IO + "exchange.py",
        "            evidence.started_writing = True\n",
        "",
        T_WIRE,
    ),
    Mutant(
        "the connection of an exchange that was broken off is given back",
        IO + "exchange.py",
        "        except BaseException:\n            connection.close()",
        "        except BaseException:\n            connection.release()",
        "tests/io/test_exchange.py " + T_WIRE,
    ),
    Mutant(
        "a body of any size is written at once",
        IO + "exchange.py",
        "len(body) <= WHOLE_BODY_LIMIT\n            and type",
        "type",
        "tests/io/test_exchange.py",
    ),
    Mutant(
        "an unknown aiohttp is leant on",
        IO + "exchange.py",
        "release.startswith(KNOWN_RELEASES) and ",
        "",
        "tests/io/test_exchange.py",
    ),
    Mutant(
        "mocks of a session's requests are passed by",
        IO + "exchange.py",
        "            and type(session)._request is _REQUEST\n",
        "",
        "tests/io/test_exchange.py",
    ),
    Mutant(
        "who forbids requests to be written is passed by",
        IO + "exchange.py",
        "            and aiohttp.ClientRequest.send is _SEND\n",
        "",
        "tests/io/test_exchange.py",
    ),
    Mutant(
        "a session that somebody gave a proxy is passed by",
        IO + "exchange.py",
        "        and not any((session._default_proxy, session._trust_env))\n",
        "",
        "tests/io/test_exchange.py",
    ),
    Mutant(
        "what a service says before it is asked is its answer",
        IO + "exchange.py",
        "if protocol.should_close or (evidence.reused and (poll(0) or protocol.writing_paused)):",
        "if evidence.reused and (protocol.should_close or poll(0) or protocol.writing_paused):",
        "tests/io/test_exchange.py",
    ),
    Mutant(
        "an error keeps the body that it was about",
        IO + "transport.py",
        "            error.__traceback__ = None\n",
        "",
        "tests/io/test_exchange.py",
    ),
    Mutant(
        "redirects are followed",
        IO + "transport.py",
        '"allow_redirects": False',
        '"allow_redirects": True',
        "tests/security/test_destinations.py",
    ),
    Mutant(
        "the key shows in a repr",
        CORE + "endpoint.py",
        "return \"'***'\"",
        "return str.__repr__(self)",
        T_ENDPOINT,
    ),
    Mutant(
        "a redirect's whole location is told",
        CORE + "explain.py",
        'urlsplit(headers.get("Location", "")).hostname',
        'headers.get("Location", "")',
        T_ERRORS,
    ),
    Mutant(
        "what was refused for good may be repeated",
        CORE + "explain.py",
        "return last is not None and (last.outcome",
        "return last is not None or (last.outcome",
        T_ERRORS,
    ),
    Mutant(
        "a call that reached somebody may be repeated without a key",
        CORE + "explain.py",
        " and not (counts[Outcome.ACCEPTED] or counts[Outcome.UNKNOWN])",
        "",
        T_ERRORS,
    ),
    Mutant(
        "a job that reached somebody is not delivered again",
        "pushsdk/client.py",
        "error.may_repeat = error._open",
        "pass",
        "tests/client/test_may_repeat.py",
    ),
    Mutant(
        "what is left open is judged by the last that was refused",
        IO + "ledger.py",
        "any(may_repeat(each) for _, each in parts)",
        "may_repeat(parts[-1][1])",
        "tests/client/test_may_repeat.py",
    ),
    Mutant(
        "plain http is open to every host",
        CORE + "endpoint.py",
        "and not is_loopback(",
        "and not bool(",
        T_ENDPOINT,
    ),
]

# What only kill -9 shows.
KILLS = [
    Mutant(
        "a chunk is claimed after it was sent",
        RUNS + "runner.py",
        "            await self._recorder.claim(Event(kind, piece.chunk, piece.start, piece.stop))\n",
        """            verdict = await self._engine.sender.run(job, has_slot=True)
            await self._recorder.claim(Event(kind, piece.chunk, piece.start, piece.stop))
            return verdict
""",
        T_KILL,
    ),
    Mutant(
        "a resume sends what was claimed and never settled",
        RUNS + "state.py",
        "case 0 | 2:",
        "case 0 | 1 | 2:",
        T_KILL,
    ),
    Mutant(
        "a resume sends again what it was told to hold",
        RUNS + "runner.py",
        "list(self._journal.held()) if self._wishes.resend else []",
        "list(self._journal.held())",
        T_KILL,
    ),
    Mutant(
        "a disconnect is read as never sent, in a run",
        CORE + "outcome.py",
        "    if evidence.started_writing or not (",
        "    if not (",
        T_KILL,
    ),
    Mutant(
        "a chunk sent again in doubt is not marked",
        RUNS + "runner.py",
        "Kind.RESENT if doubtful else Kind.CLAIMED",
        "Kind.CLAIMED",
        T_KILL,
    ),
    Mutant(
        "a commit that was broken off can't be rolled back",
        RUNS + "runfile.py",
        "PRAGMA journal_mode = PERSIST",
        "PRAGMA journal_mode = MEMORY",
        "tests/broadcast/test_kill.py::test_a_run_survives_kills_in_the_middle_of_a_commit",
    ),
]

RUNNING = [
    Mutant(
        "what is refused after a doubt is planned again",
        RUNS + "course.py",
        "note = Kind.UNKNOWN if doubtful else Kind.RELEASED",
        "note = Kind.RELEASED",
        "tests/broadcast/test_runs_model.py",
    ),
    Mutant(
        "what is refused after a doubt is cut",
        RUNS + "course.py",
        "    if doubtful:\n        return",
        "    if False:\n        return",
        "tests/broadcast/test_runs_model.py",
    ),
    Mutant(
        "a piece is sent with the ids of its whole chunk",
        RUNS + "parts.py",
        "ids = chunk.ids if piece.users == chunk.users else",
        "ids = chunk.ids if piece.users else",
        "tests/broadcast/test_runs_model.py",
    ),
    Mutant(
        "a claim is sent though it could not be committed",
        RUNS + "recorder.py",
        "await asyncio.shield(self._arrange(event))\n        self.check()",
        "await asyncio.shield(self._arrange(event))",
        "tests/broadcast/test_run_trouble.py",
    ),
    Mutant(
        "a file that fails swallows the cancellation of its run",
        RUNS + "runner.py",
        "flush()\n        self._recorder.check()",
        "flush()\n            self._recorder.check()",
        T_EDGES,
    ),
    Mutant(
        "cancelled twice, a run closes its file under the thread that writes to it",
        RUNS + "recorder.py",
        "except asyncio.CancelledError as error:\n                cancelled = error",
        "except asyncio.CancelledError:\n                raise",
        T_EDGES,
    ),
    Mutant(
        "a commit that was cancelled with its loop is taken for made",
        RUNS + "recorder.py",
        "if not group.tried:",
        "if False:",
        "tests/broadcast/test_recorder.py",
    ),
    Mutant(
        "the waits of a run do not grow",
        RUNS + "courier.py",
        "self._policy.backoff(tries, ",
        "self._policy.backoff(1, ",
        "tests/broadcast/test_run_throttled.py",
    ),
]

CLI = "pushsdk/cli/"
T_SETTINGS = "tests/cli/test_settings.py"
T_RUNS = "tests/cli/test_progress.py tests/cli/test_broadcast_command.py"

COMMANDS = [
    Mutant(
        "a configuration folder may be relative: below the working directory",
        CLI + "settings.py",
        "if each and os.path.isabs(each)",
        "if each",
        T_SETTINGS,
    ),
    Mutant(
        "a settings file with the key in it may be read by the group",
        CLI + "settings.py",
        "mode & (stat.S_IRWXG | stat.S_IRWXO)",
        "mode & stat.S_IRWXO",
        T_SETTINGS,
    ),
    Mutant(
        "a key file named in the settings file is looked for in the working directory",
        CLI + "_key.py",
        "_of_file(folder / str(value))",
        "_of_file(Path(str(value)))",
        T_SETTINGS,
    ),
    Mutant(
        "a stopped run exits as one with unknown users",
        CLI + "_exit.py",
        "        (stopped, Exit.STOPPED),\n        (unknown, Exit.UNKNOWN),",
        "        (unknown, Exit.UNKNOWN),\n        (stopped, Exit.STOPPED),",
        T_RUNS,
    ),
    Mutant(
        "where nobody can be asked, it is sent",
        CLI + "_confirm.py",
        "    if yes or all(is_loopback(",
        "    if yes or not sys.stdin.isatty() or all(is_loopback(",
        "tests/cli/test_send_command.py",
    ),
    Mutant(
        "a second Ctrl-C is as patient as the first",
        CLI + "_interrupt.py",
        "if self.signals == 1:",
        "if self.signals:",
        T_RUNS,
    ),
    Mutant(
        "an interrupted run exits by its counts",
        CLI + "_runs.py",
        "return report, interrupt.signals > 0",
        "return report, False",
        T_RUNS,
    ),
    Mutant(
        "the command that resumes shows the proxy's password",
        CLI + "_summary.py",
        'elif value is not False and not (name == "proxy" and "@" in str(value)):',
        "elif value is not False:",
        T_RUNS,
    ),
]

AUDIENCE = [
    Mutant(
        "what was seen is forgotten when the spill begins",
        RUNS + "distinct.py",
        "fresh = [each for each in dict.fromkeys(ids) if each not in seen]",
        "fresh = list(dict.fromkeys(ids)) if self._spill else [e for e in dict.fromkeys(ids) if e not in seen]",
        T_DISTINCT,
    ),
    Mutant(
        "a later row of an id replaces the first, once they are on disk",
        RUNS + "distinct.py",
        "            first.setdefault(row[0], row)\n    return",
        "            first[row[0]] = row\n    return",
        T_DISTINCT,
    ),
    Mutant(
        "the ids beyond the last whole chunk are dropped",
        RUNS + "audience.py",
        "del waiting[:whole]",
        "waiting.clear()",
        T_AUDIENCE,
    ),
    Mutant(
        "an id that is NULL or empty goes into the plan",
        RUNS + "_tables.py",
        "if not all(map(operator.itemgetter(0), rows)):",
        "if False:",
        T_TABLES,
    ),
    Mutant(
        "a file name is a pattern for DuckDB",
        RUNS + "_tables.py",
        're.sub(r"([*?\\[])", r"[\\1]", str(path))',
        "str(path)",
        T_TABLES,
    ),
    Mutant(
        "a query may name the program's variables",
        RUNS + "_duck.py",
        '"python_enable_replacements": False',
        '"python_enable_replacements": True',
        T_TABLES,
    ),
    Mutant(
        "an input file that changed between two reads goes unnoticed",
        RUNS + "_files.py",
        "(each.st_size, each.st_mtime_ns)",
        "(each.st_size, 0)",
        T_AUDIENCE,
    ),
    Mutant(
        "a fraction or a boolean of JSON is an id",
        RUNS + "_text_files.py",
        "if type(user) is int:",
        "if isinstance(user, (int, float)):",
        T_AUDIENCE,
    ),
]

RUN_FILE = [
    Mutant(
        "the state changes before the commit",
        RUNS + "journal.py",
        "            if not self._log(events, at_once=at_once):\n                return False\n"
        "            self._state.apply(events)\n",
        "            self._state.apply(events)\n"
        "            if not self._log(events, at_once=at_once):\n                return False\n",
        T_JOURNAL + "disk.py",
    ),
    Mutant(
        "a failed commit is tried again",
        RUNS + "runfile.py",
        "        self._failed = why\n",
        "",
        T_JOURNAL + "disk.py",
    ),
    Mutant(
        "rows of the log after its head are not missed",
        RUNS + "journal.py",
        "or journal._seq != (there or 0) ",
        "",
        T_JOURNAL + "damage.py",
    ),
    Mutant(
        "a row of the log does not go on from the one before",
        RUNS + "records.py",
        "own == crc32(data, crc)",
        "True",
        T_JOURNAL + "damage.py",
    ),
    Mutant(
        "the seal is not compared with the plan",
        RUNS + "journal.py",
        "if seal != Seal(",
        "if not Seal(",
        T_JOURNAL + "damage.py",
    ),
    Mutant(
        "pages are not checked before they are written to",
        RUNS + "runfile.py",
        "                file._check_structure()\n",
        "",
        T_JOURNAL + "damage.py",
    ),
    Mutant(
        "a commit that was killed half-way is taken for damage",
        RUNS + "runfile.py",
        '        db.execute("PRAGMA writable_schema = ON")\n',
        "",
        T_JOURNAL + "kill.py",
    ),
    Mutant(
        "a lock on a removed file is a lock",
        RUNS + "locking.py",
        "if os.path.samestat(os.fstat(file), os.lstat(path)):",
        "if True:",
        T_JOURNAL + "place.py",
    ),
    Mutant(
        "who was ever sent again in doubt is forgotten with the next event",
        RUNS + "state.py",
        "code = _CODES[event.kind] | old & _RESENT",
        "code = _CODES[event.kind]",
        "tests/broadcast/test_journal.py",
    ),
]

EMULATOR_RULES = [
    Mutant(
        "the bucket of a rate saves up more than its burst",
        EMULATOR + "limits.py",
        "self._tokens = min(self._most, self._tokens + (self._filled - before) * self._rate)",
        "self._tokens = self._tokens + (self._filled - before) * self._rate",
        T_EMULATOR + "limits.py",
    ),
    Mutant(
        "Retry-After is rounded down",
        EMULATOR + "limits.py",
        'headers["Retry-After"] = str(math.ceil(told))',
        'headers["Retry-After"] = str(int(told))',
        T_EMULATOR + "limits.py",
    ),
    Mutant(
        "a request that finds no token takes one",
        EMULATOR + "limits.py",
        "            return wait\n        self._tokens",
        "            self._tokens -= 1\n            return wait\n        self._tokens",
        T_EMULATOR + "limits.py",
    ),
    Mutant(
        "strict looks at types before names",
        EMULATOR + "strict.py",
        "    root = _only_known_fields(body, shapes.PushBody)\n    read_push(body)\n",
        "    read_push(body)\n    root = _only_known_fields(body, shapes.PushBody)\n",
        T_EMULATOR + "strict.py",
    ),
    Mutant(
        "strict does not look into the actions of a category",
        EMULATOR + "strict.py",
        '    shapes.Category: {"actionComponents": shapes.Component},\n',
        "",
        T_EMULATOR + "strict.py",
    ),
    Mutant(
        "a rule that is off counts",
        EMULATOR + "faults.py",
        "if rule.enabled and rule.hit(endpoint, user_ids, size):",
        "if rule.hit(endpoint, user_ids, size) and rule.enabled:",
        T_EMULATOR + "fault_rules.py",
    ),
    Mutant(
        "a search is a pattern",
        EMULATOR + "search.py",
        """return re.sub(r"([\\\\%_])", r"\\\\\\1", text)""",
        "return text",
        T_EMULATOR + "search.py",
    ),
    Mutant(
        "a search ends at NUL",
        EMULATOR + "search.py",
        '.casefold().replace("\\0", "\\ufffd")',
        ".casefold()",
        T_EMULATOR + "search.py",
    ),
    Mutant(
        "a request that was only slow has failed",
        EMULATOR + "search.py",
        " AND NOT (requests.accepted = 1 AND requests.status < 400)",
        "",
        T_EMULATOR + "search.py",
    ),
    Mutant(
        "a push that is not delivered yet replaces another",
        EMULATOR + "delivery.py",
        'return "replaced" if replaced <= now else "delivered"',
        'return "replaced" if replaced < _NEVER else "delivered"',
        T_EMULATOR + "delivery.py",
    ),
    Mutant(
        "a program leaves out what the models do not know",
        EMULATOR + "snippets.py",
        "return made if msgspec.to_builtins(made) == value else value",
        "return made",
        T_EMULATOR + "snippets.py",
    ),
    Mutant(
        "a body ends the quote in a shell",
        EMULATOR + "snippets.py",
        """set(b"%\\\\'-")""",
        """set(b"%\\\\-")""",
        T_EMULATOR + "snippets.py",
    ),
]

SEGMENTS = [
    Mutant(
        "a segment's query may read any file that DuckDB can open",
        EMULATOR + "segment_child.py",
        '"SET enable_external_access = false"',
        '"SET enable_external_access = true"',
        T_EMULATOR + "segment_hostile.py",
    ),
    Mutant(
        "a segment's query may write from within a SELECT",
        EMULATOR + "segment_query.py",
        "elif kind not in _READS | _SOURCES | _ORDERS:",
        "elif kind not in _READS | _SOURCES | _ORDERS and not kind.endswith('_QUERY_NODE'):",
        T_EMULATOR + "segment_hostile.py",
    ),
    Mutant(
        "a name of the engine's own can be had through WITH",
        EMULATOR + "segment_query.py",
        "for name in ctes & set(internal):",
        "for name in ctes & set():",
        T_EMULATOR + "segment_hostile.py",
    ),
    Mutant(
        "a link out of the folder of tables is followed",
        EMULATOR + "tables.py",
        "or not real.is_relative_to(root) ",
        "",
        T_EMULATOR + "segment.py",
    ),
    Mutant(
        "the last row of a user wins",
        EMULATOR + "segment_child.py",
        "ORDER BY {order}, number",
        "ORDER BY {order}, number DESC",
        T_EMULATOR + "segment.py",
    ),
    Mutant(
        "a user is found once in each batch",
        EMULATOR + "segment_child.py",
        "last = rows[-1][0]",
        "last = None",
        T_EMULATOR + "segment.py",
    ),
    Mutant(
        "the process of a query gets the key",
        EMULATOR + "segment_process.py",
        'if not name.startswith("PUSHSDK_")',
        "if name",
        T_EMULATOR + "segment.py",
    ),
]

EMULATOR_CONTROL = [
    Mutant(
        "a search that was read in part deletes",
        EMULATOR + "control.py",
        "if search.partial:",
        "if False:",
        T_EMULATOR + "control.py",
    ),
    Mutant(
        "what is told together moves the mark with its first",
        EMULATOR + "streams.py",
        "marks = [*[None] * (len(told) - 1), mark]",
        "marks = [mark] * len(told)",
        T_EMULATOR + "streams.py",
    ),
    Mutant(
        "a request that comes while others are read is told twice",
        EMULATOR + "streams.py",
        "            before=spans[-1][1] + 1,\n",
        "",
        T_EMULATOR + "streams.py",
    ),
    Mutant(
        "who waited keeps the place",
        EMULATOR + "streams.py",
        "self._open[kind] -= 1",
        "pass",
        T_EMULATOR + "streams.py",
    ),
    Mutant(
        "other ports of this machine may ask",
        EMULATOR + "guard.py",
        '{"none", "same-origin"}',
        '{"none", "same-origin", "same-site"}',
        T_EMULATOR + "guard.py",
    ),
    Mutant(
        "any mention of images lets pictures in",
        EMULATOR + "pages.py",
        'request.query.get("images") == "1"',
        '"images" in request.query',
        T_EMULATOR + "pages.py",
    ),
    Mutant(
        "a campaign that begins anew keeps whom it had reached",
        EMULATOR + "campaigns.py",
        "            self._store.withdraw(campaign)\n            found = ",
        "            found = ",
        T_EMULATOR + "campaigns.py",
    ),
    Mutant(
        "a campaign that was started by hand starts again when it is due",
        EMULATOR + "campaigns.py",
        ' or not (by_hand or campaign.state == "waiting")',
        "",
        T_EMULATOR + "campaigns.py",
    ),
]

EMULATOR_STORE = [
    Mutant(
        "an id twice in one push counts once",
        EMULATOR + "changes.py",
        "entry.id, number) for user, number in times.items()]",
        "entry.id, 1) for user, number in times.items()]",
        T_EMULATOR + "store.py",
    ),
    Mutant(
        "who asks for an inbox that was reset sees what is left of it",
        EMULATOR + "sql.py",
        'WHERE id = ? AND digest NOT NULL", (inbox,)).fetchone() is not None',
        'WHERE id = ?", (inbox,)).fetchone() is not None',
        T_EMULATOR + "store.py",
    ),
    Mutant(
        "a reset that fails at its end has begun",
        EMULATOR + "store.py",
        "                new = changes.begin_anew(db, box.id)\n",
        "                new = changes.begin_anew(db, box.id)\n                self._keeping.forget(box.id)\n"
        "                self._keeping.add(box.id)\n                self._boxes.clear()\n"
        "                self.unswept = True\n                self._keeping._requests.pop(box.id)\n",
        T_EMULATOR + "store.py",
    ),
    Mutant(
        "the part that grows goes with a reset",
        EMULATOR + "changes.py",
        "WHERE part < (SELECT max(part) FROM parts)",
        "WHERE part <= (SELECT max(part) FROM parts)",
        T_EMULATOR + "store.py",
    ),
    Mutant(
        "counts go once the requests are swept",
        EMULATOR + "changes.py",
        "if not gone and not keys:",
        "if not gone:",
        T_EMULATOR + "store.py",
    ),
    Mutant(
        "the smallest inbox gives its bytes first",
        EMULATOR + "keeping.py",
        "in sizes.most_common():",
        "in reversed(sizes.most_common()):",
        T_EMULATOR + "store.py",
    ),
    Mutant(
        "one that does not fit takes its neighbours along",
        EMULATOR + "writer.py",
        "if error is None or len(group) == 1:",
        "if True:",
        T_EMULATOR + "writer.py",
    ),
    Mutant(
        "what a reset overtakes counts for the rules after it",
        EMULATOR + "app.py",
        "verdict = rules.decide(",
        "verdict = room.rules.decide(",
        T_EMULATOR + "inboxes.py",
    ),
    Mutant(
        "what did not fit is of the quota",
        EMULATOR + "app.py",
        "limiter.took(-entry.users if entry.accepted else 0)",
        "pass",
        T_EMULATOR + "inboxes.py",
    ),
    Mutant(
        "it is answered before it is stored",
        EMULATOR + "app.py",
        "        error = await self.writer.add(entry)\n",
        "        self.writer.add(entry)\n        error = None\n",
        T_EMULATOR + "inboxes.py",
    ),
    Mutant(
        "a store that is used again gives the same uuids",
        EMULATOR + "app.py",
        ":campaigns:{store.last_id()}",
        ":campaigns",
        T_EMULATOR + "inboxes.py",
    ),
    Mutant(
        "temporary stores in use are cleaned up",
        EMULATOR + "database.py",
        "                release = lock(held)\n",
        "                release = lambda: None\n",
        T_EMULATOR + "database.py",
    ),
    Mutant(
        "a forked child takes its parent's store along",
        EMULATOR + "database.py",
        "    if os.getpid() != process:\n        return",
        "    if False:\n        return",
        T_EMULATOR + "database.py",
    ),
    Mutant(
        "links are followed",
        EMULATOR + "database.py",
        ' | getattr(os, "O_NOFOLLOW", 0)',
        "",
        T_EMULATOR + "database.py",
    ),
    Mutant(
        "a database of something else is opened all the same",
        EMULATOR + "database.py",
        "if application != _APPLICATION_ID:",
        "if False:",
        T_EMULATOR + "database.py",
    ),
    Mutant(
        "who waits misses what comes from another thread",
        EMULATOR + "live.py",
        "                if self.mark > mark:\n                    return\n",
        "",
        T_EMULATOR + "live.py",
    ),
]

TELEMETRY = [
    Mutant(
        "a repeat is not told from a first attempt",
        IO + "sender.py",
        "observer.attempt(job.endpoint, job.users, job.own)",
        "observer.attempt(job.endpoint, job.users, 0)",
        T_OTEL,
    ),
    Mutant(
        "a span is left open where an attempt ends before it is judged",
        IO + "sender.py",
        "            if job.watched is not None:\n                self._watched(job, None)\n            self._slots",
        "            self._slots",
        T_OTEL,
    ),
    Mutant(
        "aiohttp's instrumentation makes a second span",
        OTEL + "_spans.py",
        "otel_context.set_value(_SUPPRESS, True, self._around)",
        "self._around",
        "tests/otel/test_on_sockets.py",
    ),
    Mutant(
        "a shared request is under whoever freed its place",
        OTEL + "_spans.py",
        'self._tracer.start_span("push batch", context, attributes',
        'self._tracer.start_span("push batch", None, attributes',
        T_OTEL,
    ),
    Mutant(
        "links are not bounded",
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
        "baggage goes along",
        OTEL + "__init__.py",
        "TraceContextTextMapPropagator() if propagate is True",
        "__import__('opentelemetry.propagate').propagate.get_global_textmap() if propagate is True",
        "tests/otel/test_instrument.py",
    ),
    Mutant(
        "the users of a client that is gone are not counted any more",
        OTEL + "_metrics.py",
        "                _count(self._past, source)\n",
        "",
        "tests/otel/test_metrics.py",
    ),
]

SYNC_CODE = [
    Mutant(
        "a child keeps the parent's connections",
        SYNC + "process.py",
        "        _disconnect(worker)\n",
        "",
        T_SYNC + "fork.py",
    ),
    Mutant(
        "an interrupted call goes on",
        SYNC + "worker.py",
        "            call.task.cancel()",
        "            pass",
        T_SYNC + "interrupts.py",
    ),
    Mutant(
        "a result that its thread did not take is told to nobody",
        SYNC + "worker.py",
        "        if call.ended and late is not None:",
        "        if not call.begun and late is not None:",
        T_SYNC + "interrupts.py",
    ),
    Mutant(
        "the caller's iterable is read in the loop",
        SYNC + "reading.py",
        "    return Reader(items, ask)",
        "    return items",
        T_SYNC + "threads.py",
    ),
    Mutant(
        "the caller's context is lost",
        SYNC + "worker.py",
        ", context=call.context)",
        ")",
        T_SYNC + "threads.py",
    ),
    Mutant(
        "of two that close the client one cuts the drain of the other",
        SYNC + "worker.py",
        "            self._ends.pop()\n",
        "            self._ends[0]\n",
        T_SYNC + "lifetime.py",
    ),
    Mutant(
        "a call in on_event waits for itself",
        SYNC + "portal.py",
        "if worker.thread.ident == threading.get_ident():",
        "if worker.thread.ident == 0:",
        T_SYNC + "threads.py",
    ),
    Mutant(
        "a dropped client keeps its thread",
        SYNC + "portal.py",
        "if place is not None and place.worker.end(AT_EXIT) is not None:",
        "if place is not None:",
        T_SYNC + "lifetime.py",
    ),
]

CLAIMS, T_CLAIMS = "pushsdk/claims/", "tests/claims/test_"
CLAIM_STORES = [
    Mutant(
        "an UNKNOWN is sent again at the next delivery",
        CORE + "dedupe.py",
        "        return Position(Mark.CLAIMED)\n",
        "        return Position(Mark.OPEN)\n",
        "tests/core/test_dedupe.py",
    ),
    Mutant(
        "a part that was never sent, behind a 413, is settled as rejected",
        CORE + "explain.py",
        "last.outcome is not Outcome.REJECTED or last.repeatable",
        "last.repeatable",
        "tests/core/test_dedupe.py",
    ),
    Mutant(
        "parts of a payload run together in its fingerprint",
        CORE + "dedupe.py",
        'b"%d:" % len(part) + part',
        "part",
        "tests/core/test_dedupe.py",
    ),
    Mutant(
        "a request refused for a neighbour settles everybody in it",
        CORE + "dedupe.py",
        " or verdict.shared",
        "",
        T_CLAIMS + "sends.py",
    ),
    Mutant(
        "users in another order are another payload",
        CORE + "dedupe.py",
        "tuple(sorted(users))",
        "users",
        T_CLAIMS + "sends.py",
    ),
    Mutant(
        "a store that asks again takes its own claim for another's",
        CLAIMS + "_owed.py",
        "if found.token in self.written:",
        "if False:",
        T_CLAIMS + "owed.py",
    ),
    Mutant(
        "a store that asks to swap again sends to those who were reached",
        CLAIMS + "_owed.py",
        "return self.written[found.token]",
        "return Held(self.key, found.token, self._ours.opened(), self._ours)",
        T_CLAIMS + "owed.py " + T_CLAIMS + "trouble.py",
    ),
    Mutant(
        "a claim that comes late after another one holds its users",
        CLAIMS + "_owed.py",
        "held.before.is_void and len(self.written) == 1",
        "held.before.is_void",
        T_CLAIMS + "owed.py",
    ),
    Mutant(
        "a claim of the rest that comes late holds them",
        CLAIMS + "_owed.py",
        "            yield self._fencing(token, self._replaced_is)\n",
        "",
        T_CLAIMS + "trouble.py",
    ),
    Mutant(
        "a claim whose answer was lost is not given back",
        CLAIMS + "_guard.py",
        "                await self._try(taking.key, taking.undoing, UNUSED)\n",
        "",
        T_CLAIMS + "trouble.py",
    ),
    Mutant(
        "who cancels all tasks has what was claimed held",
        CLAIMS + "_guard.py",
        "if task.cancelled() and again:",
        "if False:",
        T_CLAIMS + "trouble.py",
    ),
    Mutant(
        "a crowd waits behind a store that is silent",
        CLAIMS + "_guard.py",
        "self._turns.silent(began)",
        "pass",
        T_CLAIMS + "turns.py",
    ),
    Mutant(
        "a turn that comes with a cancellation is lost",
        CLAIMS + "_turns.py",
        "                self.give()\n            raise",
        "                pass\n            raise",
        T_CLAIMS + "turns.py",
    ),
    Mutant(
        "a claim may expire while its request is out",
        CLAIMS + "_guard.py",
        "self._store.claim_ttl / 2",
        "self._store.claim_ttl * 2",
        T_CLAIMS + "sends.py",
    ),
    Mutant(
        "a settled claim never expires in Redis",
        CLAIMS + "redis.py",
        "redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])",
        "redis.call('SET', KEYS[1], ARGV[2])",
        T_CLAIMS + "stores.py " + T_CLAIMS + "each_store.py",
    ),
    Mutant(
        "an expired claim is swapped in SQLite",
        CLAIMS + "sqlite.py",
        'WHERE key = ? AND token = ? AND expires > ?"\n_REMOVE',
        'WHERE key = ? AND token = ? AND expires > ? - 9e9"\n_REMOVE',
        T_CLAIMS + "stores.py",
    ),
]

TESTING = [
    Mutant(
        "a fault that never fired passes where an error was expected",
        "pushsdk/testing/armed.py",
        "            self.unsaid = self._never_fired(idle)  # by a test that expects the error\n"
        "            error.add_note(self.unsaid)",
        "            error.add_note(self._never_fired(idle))",
        "tests/testing/test_plugin.py",
    ),
    Mutant(
        "a fault without a with passes",
        "pushsdk/testing/armed.py",
        'None if needed == "none" else self._never_used()',
        "None",
        "tests/testing/test_plugin.py",
    ),
    Mutant(
        "one fired fault speaks for all",
        "pushsdk/testing/armed.py",
        '(self._needed == "any" and len(idle) < len(self._faults))',
        "len(idle) < len(self._faults)",
        "tests/testing/test_push_inbox.py",
    ),
    Mutant(
        "one test's pushes are in the next one's inbox",
        "pushsdk/testing/plugin.py",
        'f"test-{secrets.token_hex(8)}"',
        '"test"',
        "tests/testing/test_plugin.py",
    ),
    Mutant(
        "a test leaves the clock ahead",
        "pushsdk/testing/inbox.py",
        "            self.advance(-self._ahead)",
        "            self._ahead = 0.0",
        "tests/testing/test_push_inbox.py",
    ),
    Mutant(
        "refused requests are waited for too",
        "pushsdk/testing/inbox.py",
        "    if not parse(search).fates:",
        "    if False:",
        "tests/testing/test_push_inbox.py",
    ),
    Mutant(
        "a broken answer of the fake service was accepted",
        "pushsdk/testing/answers.py",
        "return Answer(failure=Failure.RESET, after=after)",
        "return Answer(failure=Failure.RESET, accepted=True, after=after)",
        "tests/testing/test_fake_service.py",
    ),
]

EXEC = [
    Mutant(
        "exec tells a signal as a negative code",
        "pushsdk/cli/emulator.py",
        "return code if code >= 0 else 128 - code",
        "return code",
        "tests/cli/test_emulator_command.py",
    ),
    Mutant(
        "Ctrl-C reaches the command of exec twice",
        "pushsdk/cli/emulator.py",
        "elif not (signal.Signals(number).name in _FROM_KEYS and _in_front()):",
        "else:",
        "tests/cli/test_emulator_command.py",
    ),
    Mutant(
        "exec loses a signal that comes before its command",
        "pushsdk/cli/emulator.py",
        "            early.append(number)",
        "            pass",
        "tests/cli/test_emulator_command.py::test_a_signal_that_comes_before_the_command_runs_is_not_lost",
    ),
]

SPARK, T_SPARK = "pushsdk/spark/", "tests/engines/test_"

BY_SPARK = [
    Mutant(
        "a row without an id is a user",
        SPARK + "_chunks.py",
        "waiting.append(batch.filter(pc.and_not(pc.is_valid(ids), is_empty)))",
        "waiting.append(batch.filter(pc.is_valid(ids)))",
        T_SPARK + "chunks.py",
    ),
    Mutant(
        "what was cut is cut again with the next batch",
        SPARK + "_chunks.py",
        "waiting = table.slice(whole * max_users).to_batches()",
        "waiting = table.to_batches()",
        T_SPARK + "chunks.py",
    ),
    Mutant(
        "a run by Spark is sent without its claims",
        "pushsdk/spark/_canary.py",
        "return ask(lambda store: store.get(digest_of(run))) is not None",
        "return True",
        "tests/engines/test_folder.py",
    ),
    Mutant(
        "who is undecided is taken for decided, and others are blamed",
        RUNS + "courier.py",
        "        return verdict is not None\n",
        "        return True\n",
        "tests/arrow/test_dispatcher.py",
    ),
    Mutant(
        "a run by Spark is taken up when its claims have expired",
        SPARK + "_manifest.py",
        "if age > kept / 2:",
        "if False:",
        T_SPARK + "folder.py",
    ),
    Mutant(
        "a run by Spark goes on with another claim store",
        SPARK + "_manifest.py",
        '    "claims": "another claim store",\n',
        "",
        T_SPARK + "folder.py",
    ),
    Mutant(
        "a report makes claims that are gone anew",
        SPARK + "_standing.py",
        "if not folder.claims.is_dir() or not is_there(",
        "if not is_there(",
        T_SPARK + "standing.py",
    ),
    Mutant(
        "who is claimed in a run that goes on was never sent to",
        SPARK + "_standing.py",
        "Mark.CLAIMED: (Outcome.UNKNOWN,",
        "Mark.CLAIMED: (Outcome.NOT_SENT,",
        T_SPARK + "standing.py",
    ),
    Mutant(
        "an older sending's report stands for one that failed",
        SPARK + "_report.py",
        "if found is not None and not folder.is_underway():",
        "if found is not None:",
        T_SPARK + "standing.py",
    ),
    Mutant(
        "every task takes itself for the first of those that share a rate",
        SPARK + "_preflight.py",
        "msgspec.structs.replace(self.rate, place=place)",
        "self.rate",
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
        "each task has the whole rate",
        SPARK + "_preflight.py",
        "None if value is None else value / tasks",
        "value",
        T_SPARK + "preflight.py",
    ),
    Mutant(
        "speculation passes",
        SPARK + "_preflight.py",
        '(settings.get("spark.speculation") or "false").lower() == "true"',
        "False",
        T_SPARK + "preflight.py",
    ),
]

ARROW, T_ARROW = "pushsdk/arrow/", "tests/arrow/test_"
BY_ARROW = [
    Mutant(
        "of two that write the same state of an entry in a directory, both did",
        CLAIMS + "directory.py",
        "st_nlink > 1",
        "st_nlink > 0",
        T_CLAIMS + "directory.py tests/claims/test_stores.py",
    ),
    Mutant(
        "a name that was made though its answer was lost is another's",
        CLAIMS + "directory.py",
        "return os.stat(temporary, dir_fd=self._root).st_nlink > 1",
        "return False",
        T_CLAIMS + "directory.py",
    ),
    Mutant(
        "what is remembered of an entry is believed",
        CLAIMS + "directory.py",
        "                newer = self._last(key, last)\n",
        "                newer = last\n",
        "tests/claims/test_stores.py",
    ),
    Mutant(
        "what a loss of power left of a claim is a removal",
        CLAIMS + "directory.py",
        "if data == REMOVED:",
        'if data in (REMOVED, b""):',
        T_CLAIMS + "directory.py",
    ),
    Mutant(
        "a claim is linked before it is on the disk",
        CLAIMS + "directory.py",
        "                if self._durable:\n                    os.fsync(file)\n",
        "",
        T_CLAIMS + "directory.py",
    ),
    Mutant(
        "who is told as not sent stays claimed, where the store failed when he was given back",
        CLAIMS + "_owed.py",
        "    yield from settling(found.token, true)\n",
        "",
        T_ARROW + "dispatcher.py",
    ),
    Mutant(
        "those that share a rate begin all at once",
        CORE + "pacing.py",
        "now + part * self._cost(users)",
        "now",
        T_ARROW + "dispatcher.py",
    ),
    Mutant(
        "a chunk waits for places until its claim has expired",
        ARROW + "_dispatcher.py",
        "self._take_place(part.users, until=load.latest_start)",
        "self._take_place(part.users)",
        T_ARROW + "dispatcher.py",
    ),
    Mutant(
        "a request starts so late under its claim that it is cut",
        ARROW + "_load.py",
        "deadline - min(half, half if attempt is None else attempt)",
        "deadline",
        T_ARROW + "dispatcher.py",
    ),
    Mutant(
        "what was on the wire when it was cancelled is given back",
        ARROW + "_dispatcher.py",
        "            self._note(part, self._course(verdict)[1], verdict)\n            raise\n",
        "            raise\n",
        T_ARROW + "dispatcher.py",
    ),
    Mutant(
        "who was reached by another delivery between two tries is sent to again",
        ARROW + "_outcomes.py",
        "                        if self.at(place).mark is Mark.OPEN:\n",
        "                        if False:\n",
        T_ARROW + "outcomes.py",
    ),
    Mutant(
        "what another delivery settled is told anew over what is known here",
        ARROW + "_outcomes.py",
        "                        if self.at(place).mark is Mark.OPEN:\n",
        "                        if True:\n",
        T_ARROW + "outcomes.py",
    ),
    Mutant(
        "stopped while the store was asked, a chunk is sent all the same",
        ARROW + "_dispatcher.py",
        "        if self.ending is not None:\n            return\n        if not load.is_busy",
        "        if not load.is_busy",
        T_ARROW + "dispatcher.py",
    ),
    Mutant(
        "passing over what was sent before costs rate",
        "pushsdk/_io/slots.py",
        "        self.gate.refund(users)\n",
        "",
        T_ARROW + "dispatcher.py",
    ),
    Mutant(
        "time without anything to send is an outage",
        ARROW + "_dispatcher.py",
        "                self._watch.paused(self._loop.time() - self._idle_since)\n",
        "                pass\n",
        T_ARROW + "dispatcher.py",
    ),
    Mutant(
        "a slow consumer has chunks pile up",
        ARROW + "_dispatcher.py",
        "len(self._loads) + self._box.qsize() <",
        "len(self._loads) <",
        T_ARROW + "lifetime.py",
    ),
    Mutant(
        "the fields of a user are no part of the fingerprint",
        ARROW + "_chunks.py",
        "fingerprint_of_all(_key(self._run, chunk_id), self._base_url, payloads)",
        'fingerprint_of_all(_key(self._run, chunk_id), self._base_url, [(each[0], b"", None) for each in payloads])',
        T_ARROW + "chunks.py",
    ),
    Mutant(
        "an error of the input cuts off what was on its way",
        ARROW + "_dispatcher.py",
        "        if self._failure is None:\n            self._failure = error\n",
        "        if self._failure is None:\n            self._failure = error\n            self._box.put(None)\n",
        T_ARROW + "lifetime.py",
    ),
    Mutant(
        "a generator that is dropped leaves its thread",
        ARROW + "_push.py",
        "            _end(worker)\n",
        "            pass\n",
        T_ARROW + "lifetime.py",
    ),
]

T_FORKS = "tests/io/test_forks.py"
FORKS = [
    Mutant(
        "a fork waits for nobody who is inside SQLite",
        IO + "forks.py",
        "if not _is_used() or monotonic() >= until:",
        "if True:",
        T_FORKS,
    ),
    Mutant(
        "a transaction begins while a process forks",
        IO + "forks.py",
        "    if _forking:\n        _let_fork(me)\n",
        "",
        T_FORKS,
    ),
    Mutant(
        "a callback of SQLite that forks waits for itself",
        IO + "forks.py",
        "now - since < PATIENCE and thread not in _forking for",
        "now - since < PATIENCE for",
        T_FORKS,
    ),
    Mutant(
        "every fork waits anew for a disk that hangs",
        IO + "forks.py",
        "now - since < PATIENCE and thread not in _forking for",
        "thread not in _forking for",
        T_FORKS,
    ),
    Mutant(
        "a signal handler that forks has others go in before the fork that it interrupted",
        IO + "forks.py",
        "    while True:\n        # Each time: a signal handler that forked during the sleep has ended it.\n"
        "        _forking[me] = until\n",
        "    _forking[me] = until\n    while True:\n",
        T_FORKS,
    ),
    Mutant(
        "a run is written to while a process forks",
        RUNS + "runfile.py",
        "    @unforked\n    def commit(",
        "    def commit(",
        "tests/io/test_forks_sqlite.py",
    ),
    Mutant(
        "a child believes the parent's threads to be inside",
        IO + "forks.py",
        "for thread in _inside.keys() - {get_ident()}:",
        "for thread in ():",
        T_FORKS,
    ),
]

T_BLOCKING = T_CLAIMS + "blocking.py"
BLOCKING = [
    Mutant(
        "the folder of claims is closed under what hangs in it",
        CLAIMS + "_blocking.py",
        "            self._out += 1\n",
        "",
        T_BLOCKING,
    ),
    Mutant(
        "a claim whose caller was cancelled is not made, or later",
        CLAIMS + "_blocking.py",
        "    future.set_running_or_notify_cancel()\n",
        "",
        T_BLOCKING,
    ),
    Mutant(
        "a store of claims that nobody closed keeps its threads",
        CLAIMS + "_blocking.py",
        "                weakref.finalize(self, threads.shutdown).atexit = False\n",
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
