"""The bugs that ``plant`` plants, and the tests that must find each one.

A bug is a body for a function that is found by its name: it replaces the body, and may call the function that it
replaces as ``original``. ``tests`` are paths for pytest, fastest to fail first.
"""

from __future__ import annotations

from typing import NamedTuple


class Bug(NamedTuple):
    """A planted bug."""

    sentence: str
    place: str
    """The module below ``pushsdk`` and the function in it: ``_core.judging:find_rule``."""
    body: str
    tests: str

    @property
    def module(self) -> str:
        return self.place.partition(":")[0]

    @property
    def name(self) -> str:
        return self.place.partition(":")[2]


OUTCOMES = [
    Bug(
        "a login page counts as a delivery",
        "_core.judging:_is_json_or_empty",
        "return True",
        "tests/core/test_outcome.py::test_a_2xx_is_accepted_only_if_its_body_is_json_or_empty",
    ),
    Bug(
        "a request that was written counts as not sent",
        "_core.judging:_is_unsent",
        "return evidence.status is None",
        "tests/core/test_outcome.py::test_a_response_that_arrived_before_the_request_answers_nothing",
    ),
    Bug(
        "a response to an earlier request counts as the response",
        "_core.judging:find_rule",
        """
            rows = [rule for rule in TABLE if evidence.status in rule.statuses and rule.condition(evidence)]
            return rows[0] if rows else TABLE[-1]
        """,
        "tests/core/test_outcome.py::test_a_response_that_arrived_before_the_request_answers_nothing",
    ),
    Bug(
        "a push is accepted before its request was written",
        "_core.judging:decide",
        """
            rule = find_rule(evidence)
            if rule.outcome is ACCEPTED:
                return ACCEPTED, False
            return original(evidence, statuses, retry_on)
        """,
        "tests/core/test_outcome.py::test_a_status_is_read_by_the_table_and_the_policy_overrides_it",
    ),
    Bug(
        "a 503 is retried although the service didn't say when",
        "_core.judging:_has_retry_after",
        "return True",
        "tests/core/test_outcome.py::test_a_status_is_read_by_the_table_and_the_policy_overrides_it",
    ),
    Bug(
        "a final rejection is called retryable",
        "_core.outcome:is_retryable",
        "return verdict.outcome in (Outcome.NOT_SENT, Outcome.REJECTED)",
        "tests/core/test_errors.py::test_an_error_says_if_the_same_call_is_retryable",
    ),
    Bug(
        "a call that was accepted in part raises the error of its last part",
        "_core.error_mapping:partial_error",
        "return error_for(parts[-1][1], target=target, user_ids=users)",
        "tests/core/test_errors.py::test_users_with_different_outcomes_are_listed_in_the_order_of_the_call",
    ),
]


RETRIES = [
    Bug(
        "a 204 on an idle connection is accepted although the policy doubts it",
        "_io.sender:RequestSender.reserve",
        """
            fast = self.transport.fast
            if fast is None or self.work.closed or not request.is_asked or type(request.key) is NoKey:
                return False
            connection = fast.takes(request.body) and fast.take_idle()
            if connection:
                self.open(request, connection)
            return bool(connection)
        """,
        "tests/runs/test_run_wire.py",
    ),
    Bug(
        "an unknown outcome is pushed again unasked",
        "_core.policy:RetryPolicy.should_retry",
        "return attempt.outcome is Outcome.UNKNOWN or attempt.retryable",
        "tests/io/test_retrying.py::test_how_often_each_policy_tries",
    ),
    Bug(
        "retries of many clients come at the same moment",
        "_core.policy:RetryPolicy.backoff",
        "return original(self, number, attempt, 1.0)",
        "tests/core/test_policy.py",
    ),
    Bug(
        "the Retry-After of the service is not heeded",
        "_core.rate_limit:parse_retry_after",
        "return None",
        "tests/core/test_rate_limit.py",
    ),
    Bug(
        "a shorter pause ends a longer one",
        "_core.rate_limit:RateLimiter.pause",
        "self.paused_until = self.not_before = until",
        "tests/core/test_rate_limit.py::test_a_pause_holds_until_its_end_and_a_shorter_one_never_shortens_it",
    ),
    Bug(
        "a retry costs nothing of the retry budget",
        "_core.rate_limit:RetryBudget.spend",
        "pass",
        "tests/core/test_budget.py::test_the_tokens_stay_in_bounds_and_retries_are_paid_for",
    ),
    Bug(
        "the retry budget grows without limit",
        "_core.rate_limit:RetryBudget.refund",
        "self.tokens += tokens",
        "tests/core/test_budget.py::test_the_tokens_stay_in_bounds_and_retries_are_paid_for",
    ),
    Bug(
        "a retry is made past its call's deadline",
        "_io.sender:RequestSender._allows",
        "return not self.work.closed",
        "tests/io/test_retrying.py::test_a_failure_that_may_not_be_retried_does_not_enter_the_loop",
    ),
    Bug(
        "a failure that may not be retried is retried",
        "_io.sender:RequestSender._may_go_on",
        "return request.failure is None",
        "tests/io/test_retrying.py::test_a_failure_that_may_not_be_retried_does_not_enter_the_loop",
    ),
    Bug(
        "a refused key is not asked for again",
        "_io.sender:RequestSender._has_other_key",
        "return False",
        "tests/io/test_tenants.py",
    ),
    Bug(
        "a connection that the service closed fails the send",
        "_io.sender:RequestSender._may_replace",
        "return False",
        "tests/faults/test_pooled.py::test_a_whole_pool_of_stale_connections_is_replaced_and_fails_no_call",
    ),
    Bug(
        "a pause that the service asks for delays nothing",
        "_io.sender:RequestSender._pause",
        "pass",
        "tests/io/test_stats.py::test_stats_show_what_is_in_flight_queued_and_paused_now",
    ),
]


DEADLINES = [
    Bug(
        "a call that can't be answered in time is begun",
        "_io.queue:SendQueue._drop_late",
        """
            for call in [call for call in batch.units if call.future.done()]:
                self.leave(call, batch, Failure.CANCELLED)
        """,
        "tests/io/test_overload.py",
    ),
    Bug(
        "a call that is short of time takes its whole batch along",
        "_io.batch_sender:BatchSender.drop",
        """
            if any(unit.deadline <= due for unit in request.part.units):
                due = math.inf
            original(self, request, due)
        """,
        "tests/io/test_overload.py::test_only_the_calls_that_are_short_of_time_leave_a_batch_while_it_connects",
    ),
    Bug(
        "a client whose estimate is too high never measures again",
        "_core.attempt_times:AttemptTimes.needed",
        "return self.likely if others_wait else self.usual",
        "tests/core/test_attempt_times.py",
    ),
    Bug(
        "half of the calls that are begun late are answered late",
        "_core.attempt_times:AttemptTimes.needed",
        "return self.usual if self._waiting else 0.0",
        "tests/core/test_attempt_times.py",
    ),
    Bug(
        "calls are begun behind a queue in the service that is longer than their time",
        "_core.attempt_times:_Line.fit",
        "pass",
        "tests/io/test_overload.py",
    ),
    Bug(
        "a server that hangs beside others holds back what they would answer",
        "_core.attempt_times:AttemptTimes.hanging",
        "return 0",
        "tests/io/test_overload.py",
    ),
    Bug(
        "the time to connect counts as the time of an answer",
        "_io.batch_sender:BatchRequest.prepare",
        """
            body = await original(self)
            if body is not None:
                self.flight.sent = self.owner.limiter.times.sent(self.flight.started)
            return body
        """,
        "tests/io/test_overload.py::test_neither_connecting_nor_a_claim_counts_as_the_time_of_an_attempt",
    ),
    Bug(
        "urgent sends wait like all others",
        "_io.limiter:ConcurrencyLimiter.enqueue",
        """
            turn = min(waiting.deadline, self.clock() + PATIENCE)
            heapq.heappush(self._queue, (True, turn, next(self._numbers), waiting))
            self._assign_slots()
        """,
        "tests/io/test_overload.py::test_urgent_sends_go_before_all_that_wait_and_share_no_request_with_them",
    ),
    Bug(
        "short timeouts wait behind long ones",
        "_io.limiter:ConcurrencyLimiter.enqueue",
        """
            heapq.heappush(self._queue, (not waiting.is_urgent, 0.0, next(self._numbers), waiting))
            self._assign_slots()
        """,
        "tests/io/test_overload.py::test_short_timeouts_get_their_share_beside_long_ones",
    ),
    Bug(
        "a cancelled wait for a slot keeps the slot",
        "_io.limiter:ConcurrencyLimiter.acquire",
        """
            waiter = _SlotFuture(self._loop, users, deadline, is_urgent)
            self.enqueue(waiter)
            await waiter.future
        """,
        "tests/runs/test_runs_model.py::test_runs_are_correct_for_every_user_in_all_processes",
    ),
    Bug(
        "users who were not sent to cost rate",
        "_io.limiter:ConcurrencyLimiter.give_back",
        "self.release()",
        "tests/claims/test_sends.py::test_a_request_with_recorded_users_only_costs_no_rate",
    ),
    Bug(
        "a call that waits in the queue does not end at its deadline",
        "_io.queue:SendQueue._expect",
        "pass",
        "tests/io/test_coalescing.py tests/io tests/model",
    ),
    Bug(
        "an attempt has no deadline",
        "_io.sender:RequestSender.open",
        """
            flight = original(self, request, connection)
            flight.deadline = request.deadline
            return flight
        """,
        "tests/io/test_deadlines.py",
    ),
    Bug(
        "a request is begun after the time for its answer, as its claim took so long",
        "_io.sender:RequestSender.begin",
        """
            flight, fast = request.flight, self.transport.fast
            if now == math.inf:
                fast.release(flight.connection)
            elif fast.start(flight.connection, request, respond):
                self.counters.requests += 1
                flight.respond, flight.tick = respond, self.timers.add(flight, flight.deadline)
                return True
            flight.connection = None
            return False
        """,
        "tests/runs/test_run_wire.py::test_a_lock_of_the_run_file_stops_neither_the_loop_nor_makes_a_request_late",
    ),
    Bug(
        "a send that was not begun is not told of",
        "_io.queue:SendQueue._end_unsent",
        "self.pending.settle(call, call.users, self._not_sent(reason))",
        "tests/io/test_overload.py",
    ),
]


BATCHES = [
    Bug(
        "a user in two calls is pushed to once",
        "_core.batching:Batches.join",
        """
            joinable = self._joinable.get(content)
            if joinable is None or joinable.users + call.unsettled > self._bounds(0)[0]:
                return None
            joinable.units.append(call)
            joinable.users += call.unsettled
            joinable.size += len(call.ids) + 1
            call.batch = joinable
            return joinable
        """,
        "tests/core/test_batching.py::test_batches_hold_every_call_once_no_user_twice_and_stay_in_bounds",
    ),
    Bug(
        "a batch grows beyond max_users",
        "_core.batching:Batches.__init__",
        """
            original(self, batching, learned)
            self._max_users = 1_000_000
        """,
        "tests/io/test_coalescing.py::test_a_full_batch_does_not_linger_a_call_that_does_not_fit_opens_the_next_and_flush_sends_it",
    ),
    Bug(
        "a call joins a request that was already sent",
        "_core.batching:Batches.close",
        "batch.is_waiting = False",
        "tests/core/test_batching.py::test_calls_join_until_a_batch_is_closed",
    ),
    Bug(
        "two tenants share a request, under one key",
        "_core.batching:Batches.join",
        """
            of = attrgetter("message", "custom_fields", "options")
            content = next((other for other in self._joinable if of(other) == of(content)), content)
            return original(self, content, call)
        """,
        "tests/io/test_tenants.py::test_two_tenants_that_send_an_equal_message_at_once_are_pushed_under_their_keys",
    ),
    Bug(
        "calls with different retry policies share a request",
        "_core.batching:Batches.join",
        """
            of = attrgetter("message", "custom_fields")
            content = next((other for other in self._joinable if of(other) == of(content)), content)
            return original(self, content, call)
        """,
        "tests/io/test_coalescing.py::test_sends_that_differ_in_anything_do_not_meet",
    ),
    Bug(
        "calls with different messages share a request",
        "_core.batching:Batches.join",
        """
            of = attrgetter("options", "api_key")
            content = next((other for other in self._joinable if of(other) == of(content)), content)
            return original(self, content, call)
        """,
        "tests/io/test_backpressure.py::test_the_bytes_of_the_limit_and_one_call_are_held_however_many_calls_wait",
    ),
    Bug(
        "merged calls go under the key of the first one",
        "_io.credentials:rekey",
        """
            asks = [unit.ask for unit in request.part.units]
            for call in [getattr(unit, "call", unit) for unit in request.part.units]:
                call.ask = asks[0]
            return await original(request, timers, is_refused=is_refused)
        """,
        "tests/io/test_tenants.py::test_a_retry_asks_again_and_splits_by_key_if_some_keys_have_rotated",
    ),
    Bug(
        "the queue exceeds its limits",
        "_io.backlog:Backlog._is_over",
        "return False",
        "tests/io/test_backpressure.py::test_the_bytes_of_the_limit_and_one_call_are_held_however_many_calls_wait",
    ),
    Bug(
        "the bytes of the last message are sent for any message",
        "_core.wire:encode_message",
        "return _latest[0] or original(message, warn=warn)",
        "tests/core/test_wire.py::test_a_field_goes_out_under_its_name_and_in_its_type_and_no_other",
    ),
    Bug(
        "a value that JSON can't hold is sent as something else",
        "_core.wire:_encode_exact",
        "return _encode(value)",
        "tests/core/test_wire.py::test_what_json_has_is_taken_and_subclasses_as_their_text_or_number",
    ),
    Bug(
        "a part of a request that was split loses a call",
        "_core.splitting:BatchPart.split",
        """
            ends = (0, *at, len(self.units) - 1)
            return [BatchPart.of(self.units[start:stop], history) for start, stop in pairwise(ends)]
        """,
        "tests/core/test_splitting.py",
    ),
    Bug(
        "a request whose outcome is unknown is split and sent again",
        "_core.splitting:Splitter.report",
        """
            if verdict.outcome is Outcome.UNKNOWN:
                verdict = msgspec.structs.replace(verdict, outcome=Outcome.REJECTED)
            return original(self, part, verdict)
        """,
        "tests/core/test_splitting.py::test_only_a_rejection_with_a_status_of_split_on_is_split",
    ),
    Bug(
        "a call that waits for the rest of a split is in doubt",
        "_core.splitting:Splitter.narrow",
        "pass",
        "tests/io/test_splitting.py::test_of_calls_that_expire_during_a_split_only_those_in_flight_are_in_doubt",
    ),
    Bug(
        "a message that is to blame is tried for every user",
        "_core.splitting:Splitter.next_wave",
        """
            self._learn()
            self._bisect_large()
            self._bisect_suspects()
            wave, self._ready = self._ready, []
            return wave
        """,
        "tests/core/test_splitting.py",
    ),
    Bug(
        "nothing is learned from a request that was too large",
        "_core.learned_limit:LearnedLimit.learn",
        "pass",
        "tests/core/test_splitting.py::test_of_a_batch_that_left_in_parts_units_of_several_are_sent_alone",
    ),
    Bug(
        "a send goes to users that only_users does not name",
        "_io.pending:PendingCalls.restrict",
        "return True",
        "tests/client/test_only_users.py",
    ),
]


CANCELLATION = [
    Bug(
        "one cancelled call cancels the others in its batch",
        "_io.queue:SendQueue.cancel",
        """
            if call.batch is not None and not call.batch.is_waiting:
                return self.batch_sender.cancel(call.batch)
            return original(self, call)
        """,
        "tests/io/test_cancellation.py tests/faults/test_cancelled.py",
    ),
    Bug(
        "a cancelled call takes part in its request's retry",
        "_io.batch_sender:_without",
        """
            if due < 0:
                return part
            return original(left, due, part, verdict)
        """,
        "tests/io/test_cancellation.py",
    ),
    Bug(
        "a request that its callers have left in flight waits for its retry",
        "_io.batch_sender:BatchRequest.narrow",
        "return limiter is None or original(self, limiter)",
        "tests/io/test_cancellation.py",
    ),
    Bug(
        "a cancelled task ends before its request",
        "_io.queue:SendQueue.unwind",
        """
            self.cancel(call)
            error.add_note(self.pending.note(call))
        """,
        "tests/io/test_cancellation.py::test_a_call_that_a_timeout_of_asyncio_cancels_has_a_note",
    ),
    Bug(
        "a cancelled send goes on",
        "_io.batch_sender:BatchSender.cancel",
        "return None",
        "tests/io/test_cancellation.py",
    ),
    Bug(
        "the outcome of an abandoned send is not kept",
        "_io.pending:PendingCalls.report",
        "pass",
        "tests/io/test_cancellation.py",
    ),
    Bug(
        "a cancellation from outside is swallowed at a deadline",
        "_io.timers:DeadlineScope.__exit__",
        """
            self.tick.pop(self, None)
            task, self._task = self._task, None
            if self.expired is None:
                return False
            task.uncancel()
            return True
        """,
        "tests/io/test_timers.py::test_a_cancellation_from_outside_goes_through_also_together_with_the_deadline",
    ),
    Bug(
        "a forked child sends over its parent's connections",
        "_io.lifetime:Lifetime._leave_home",
        "pass",
        "tests/client/test_lifecycle.py::test_a_client_is_refused_after_a_fork",
    ),
    Bug(
        "a client that was closed sends",
        "_io.lifetime:Lifetime.close",
        """
            report = await original(self, drain)
            self.closed = False
            return report
        """,
        "tests/io/test_drain.py::test_one_of_a_crowd_that_waits_for_all_waits_for_the_others_too",
    ),
    Bug(
        "closing a client cuts off its sends",
        "_io.lifetime:Lifetime.close",
        "return await original(self, 0.0)",
        "tests/io/test_drain.py::test_what_ends_within_the_drain_is_reported_as_it_ended",
    ),
    Bug(
        "closing a client loses the outcomes that its claim store has not got so far",
        "_io.work:Work.idle",
        "await self._end_of({*self.calls, *self.others})",
        "tests/claims/test_trouble.py::test_closing_waits_for_requests_and_settlements",
    ),
    Bug(
        "a child uses what its parent made",
        "_io.forks:ProcessGuard.is_inherited",
        "return False",
        "tests/io/test_forks.py::test_what_another_process_made_is_not_used",
    ),
]


LIMIT = [
    Bug(
        "refusals do not lower the number of requests in flight",
        "_core.concurrency:AdaptiveLimit._cut",
        "self._refusals = _Refusals(now, now)",
        "tests/core/test_concurrency.py::test_refused_connections_beside_accepted_requests_lower_the_limit",
    ),
    Bug(
        "requests that queue in the service do not lower their number",
        "_core.concurrency:AdaptiveLimit._judge",
        "self._set(now, 2.0 * self._slots())",
        "tests/core/test_concurrency.py",
    ),
    Bug(
        "a few 429s while little was sent hold back the burst that comes later",
        "_core.concurrency:_Refusals.__init__",
        "original(self, at, since, waited=waited)",
        "tests/io/test_limit.py",
    ),
    Bug(
        "requests in a run that wait for a retry keep slots idle",
        "_runs.pipeline:Pipeline._room",
        "return self._engine.limiter.limit - self._workers",
        "tests/io/test_limit.py",
    ),
    Bug(
        "a few strays lower the limit",
        "_core.concurrency:AdaptiveLimit.started",
        "self.in_flight += 1",
        "tests/core/test_concurrency.py::test_stray_refusals_from_the_first_request_on_cost_little",
    ),
]


CONNECTIONS = [
    Bug(
        "bytes that wait on a connection count as the next response",
        "_io.fast_post:HttpConnection.check_stale",
        """
            self.poll = lambda timeout: []
            original(self, evidence)
        """,
        "tests/io/test_transport.py tests/faults/test_matrix.py",
    ),
    Bug(
        "a request that the service has received is sent again",
        "_io.fast_post:HttpConnection._await_reset",
        """
            self.evidence.started_writing = self.evidence.written = False
            self.handler.set_exception(StaleConnectionError())
            self.transport.abort()
        """,
        "tests/faults/test_crossing.py",
    ),
    Bug(
        "a response to a request that has not arrived is accepted",
        "_io.fast_post:HttpConnection._unacknowledged",
        "return 0",
        "tests/faults/test_early.py",
    ),
    Bug(
        "a request that was written does not say so",
        "_io.fast_post:HttpConnection.write",
        """
            original(self, head, body, evidence, respond, extra)
            evidence.started_writing = False
        """,
        "tests/io/test_transport.py::test_exchanges_of_any_size_are_written_down_and_their_connection_kept",
    ),
    Bug(
        "an answer that was read is lost if its call is cancelled",
        "_io.fast_post:HttpConnection.abort",
        """
            self.respond = None
            self.lease.close()
        """,
        "tests/faults/test_late.py",
    ),
    Bug(
        "a keep-alive time that the service announced is not heeded",
        "_io.fast_post:FastPost.announce",
        "pass",
        "tests/io/test_fast_post.py::test_an_idle_connection_is_kept_for_less_than_the_server_announces",
    ),
    Bug(
        "nothing is learned from a service that closes idle connections",
        "_io.fast_post:FastPost.shorten",
        "pass",
        "tests/io/test_fast_post.py",
    ),
    Bug(
        "a connection that was idle too long is used",
        "_io.fast_post:FastPost.take_idle",
        "return self._idle.pop() if self._idle else None",
        "tests/io/test_fast_post.py::test_an_idle_connection_is_kept_for_less_than_the_server_announces",
    ),
    Bug(
        "a connection that the service ended is used again",
        "_io.fast_post:FastPost.release",
        """
            connection.read = None
            self._idle.append(connection)
        """,
        "tests/io/test_fast_post.py::test_a_connection_that_is_still_being_written_is_not_reused",
    ),
    Bug(
        "redirects are followed, with the key",
        "_io.transport:_options_of",
        """
            options, headers = original(settings, scheme)
            return options | {"allow_redirects": True}, headers
        """,
        "tests/security/test_destinations.py::test_no_redirect_is_followed_and_the_error_names_the_host_alone",
    ),
    Bug(
        "an answer over TLS to a request that is still on its way is accepted",
        "_io.fast_post:HttpConnection._unacknowledged",
        "return original(self) if self.is_plain else 0",
        "tests/faults/test_early.py",
    ),
]


SECRETS = [
    Bug(
        "a repr shows the key",
        "_core.secret:Secret.__repr__",
        "return str(self.reveal())",
        "tests/security/test_crash_reports.py::test_a_refused_setting_is_not_in_a_crash_report",
    ),
    Bug(
        "a pickle holds the key",
        "_core.secret:Secret.__reduce__",
        "return Secret.of, (self.reveal(),)",
        "tests/security/test_pickles.py",
    ),
    Bug(
        "crash reporters find the key among the frames of aiohttp",
        "_io.heads:header_text",
        "return str(secret.reveal())",
        "tests/security/test_crash_reports.py::test_a_cancelled_request_has_no_key_in_its_crash_report",
    ),
    Bug(
        "an error keeps a key that the service echoed",
        "_core.secret:_forms",
        "return {plain}",
        "tests/core/test_mask.py::test_a_key_in_a_code_is_masked_whatever_is_around_it",
    ),
    Bug(
        "an error keeps an echoed key that was escaped twice",
        "_core.secret:_readings",
        "return ()",
        "tests/core/test_mask.py::test_an_echoed_key_is_masked_in_each_form",
    ),
    Bug(
        "an error keeps an echoed key in a compressed body",
        "_core.judging:_decompressed",
        "return body",
        "tests/core/test_mask.py::test_a_compressed_body_is_readable_and_without_the_key",
    ),
    Bug(
        "an error shows the whole location of a redirect",
        "_core.error_texts:_redirect",
        "return f\", a redirect to {attempt.headers.get('Location')}: not followed\"",
        "tests/core/test_errors.py::test_a_redirect_names_only_the_other_host",
    ),
    Bug(
        "the proxy's password stays in its URL",
        "_io.transport:_split_login",
        "return URL(proxy.reveal()), {}",
        "tests/security/test_crash_reports.py::test_a_proxys_password_is_not_in_the_crash_report_of_a_cancelled_call",
    ),
    Bug(
        "the error of a wrong argument shows a secret",
        "_core.kinds:must_be",
        'return error(f"{name} must be {rule}; got {value!r}")',
        "tests/core/test_kinds.py::test_an_error_has_the_rule_the_value_and_a_fix",
    ),
    Bug(
        "a file that others may write is trusted",
        "_io.files:objection",
        "return None",
        "tests/security/test_ownership.py::test_a_file_that_others_can_write_to_is_refused",
    ),
    Bug(
        "the command that resumes shows the proxy's password",
        "cli.options:command_line",
        """
            options_ = [f"--{name} {value}" for name, value in options.items()]
            return " ".join(["pushsdk", *map(str, words), *options_])
        """,
        "tests/cli/test_broadcast_command.py::test_the_resume_command_has_numbers_as_given_and_no_password",
    ),
]


RUNS = [
    Bug(
        "users in doubt are pushed to again",
        "_core.decisions:decide",
        """
            decision = original(verdict, in_doubt=in_doubt, may_resend=may_resend, split_on=split_on)
            if decision.status.state is UserState.UNKNOWN and not in_doubt:
                return Decision(SETTLE, UserStatus(UserState.PENDING, None))
            return decision
        """,
        "tests/kills/test_campaigns.py::test_a_run_survives_its_kills",
    ),
    Bug(
        "users whom a killed process had sent to are pushed to again",
        "_runs.log:RunFileLog.give_up_claims",
        """
            pending = UserStatus(UserState.PENDING, None)
            for positions in self._journal.ranges(frozenset({UserState.CLAIMED})):
                self.settle(positions, pending)
        """,
        "tests/kills/test_campaigns.py::test_a_run_survives_its_kills",
    ),
    Bug(
        "a run ends in the middle when the limit falls",
        "_runs.pipeline:Pipeline._next",
        """
            attempt = original(self)
            if attempt is None and self._workers > self._engine.limiter.limit:
                self._workers += 1
            return attempt
        """,
        "tests/runs/test_run_wire.py::test_a_limit_that_falls_while_responses_come_together_does_not_end_the_run",
    ),
    Bug(
        "users are pushed to before their claim is written",
        "_runs.log:RunFileLog.claim_soon",
        "self._loop.call_soon(then, True)",
        "tests/kills/test_campaigns.py::test_a_run_survives_its_kills",
    ),
    Bug(
        "an answer is recorded before a claim that was made before it",
        "_runs.log:RunFileLog._add",
        """
            group, (start, stop, status) = self._group(), event
            for number in (-1, -2)[: len(group.events)]:
                first, end, same = group.events[number]
                if end == start and same == status:
                    group.events[number] = (first, stop, status)
                    return group
            group.events.append(event)
            return group
        """,
        "tests/runs/test_group_commit.py::test_events_that_are_joined_leave_each_user_as_the_events_alone",
    ),
    Bug(
        "users are pushed to although their claim could not be written",
        "_runs.log:RunFileLog.claim",
        """
            await original(self, request, resent=resent)
            return request.positions.users, request.ids
        """,
        "tests/runs/test_run_trouble.py::test_no_request_starts_after_a_failed_write",
    ),
    Bug(
        "a run file that could not be written is written further",
        "_runs.run_file.file:RunFile._fail",
        "pass",
        "tests/runs/test_journal_disk.py::test_a_failed_write_is_not_retried_and_changes_nothing",
    ),
    Bug(
        "a damaged row of a run file is read",
        "_runs.run_file.journal:_decode",
        """
            try:
                return decoder.decode(row[0])
            except Exception:
                raise Damaged from None
        """,
        "tests/runs/test_journal_damage.py::test_any_byte_may_change",
    ),
    Bug(
        "two processes resume a run at the same time",
        "_io.files:lock",
        "return lambda: None",
        "tests/runs/test_journal_place.py::test_a_missing_right_is_named_and_what_can_be_read_is_read",
    ),
    Bug(
        "a part of a chunk is sent with the ids of all",
        "_runs.plan:ChunkRequest.of",
        'return cls(positions, chunk.ids, header.message or b"{}", header.custom_fields)',
        "tests/runs/test_runs_model.py::test_runs_are_correct_for_every_user_in_all_processes",
    ),
    Bug(
        "a run goes on although nearly all of its users are rejected",
        "_core.stop_policy:StopMonitor._too_many",
        "return None",
        "tests/core/test_stop_policy.py::test_a_service_that_accepts_no_user_stops_the_run_after_so_many_users",
    ),
    Bug(
        "a run goes on through an outage without end",
        "_core.stop_policy:StopMonitor._outage",
        "return None",
        "tests/core/test_stop_policy.py",
    ),
    Bug(
        "the time of a stopped process counts as an outage",
        "_runs.stopping:Stopping.tick",
        """
            while True:
                started = self._timers.loop.time()
                await asyncio.sleep(TICK)
                is_sending()
                self._seconds += self._timers.loop.time() - started
                self.check()
                self.may_begin()
        """,
        "tests/runs/test_runs.py::test_an_hour_of_a_stopped_process_is_no_outage",
    ),
    Bug(
        "other users of the same number continue a run, and the old ones are pushed to",
        "_runs.planner:_hashes",
        "return 0",
        "tests/runs/test_same_users.py",
    ),
    Bug(
        "an unchanged file with another id column continues a run",
        "_audience.source:FileListing.description",
        """return original(self, "user_id")""",
        "tests/runs/test_same_users.py",
    ),
    Bug(
        "a run goes to users that only_users does not name",
        "_runs.pipeline:Pipeline._restrict",
        "return",
        "tests/client/test_only_users.py",
    ),
    Bug(
        "a request is begun after not_after",
        "_runs.stopping:Stopping.may_begin",
        "return self.reason is None",
        "tests/runs/test_not_after.py",
    ),
    Bug(
        "a run in another terminal can not be stopped",
        "_runs.run_file.journal:Journal.stop_asked",
        "return None",
        "tests/runs/test_run_edges.py",
    ),
    Bug(
        "the plan that a folder's files were copied from is sent, too",
        "_runs.api:_check_header",
        "return None",
        "tests/runs/test_folder.py::test_the_plan_of_a_folder_is_not_sent",
    ),
    Bug(
        "a folder that has lost a run file is reported as whole",
        "_runs.folder:run_files",
        "return sorted(run.glob('*-of-*.run')) if run.is_dir() else [run]",
        "tests/runs/test_folder.py::test_a_file_that_is_missing_is_not_made_again",
    ),
    Bug(
        "the copy of a run file in a folder is sent, too",
        "_runs.folder:planned_files",
        "return sorted(run.glob('*-of-*.run'))",
        "tests/runs/test_folder.py::test_a_copy_of_a_run_file_is_no_part_of_a_folder",
    ),
    Bug(
        "parts of an audience overlap",
        "_audience.audience:_part",
        "yield from batches",
        "tests/audience/test_part.py::test_each_user_is_in_one_part_from_every_source",
    ),
]

CLAIMS = [
    Bug(
        "a delivery sends again what ended without an answer",
        "_core.idempotency:status_after",
        """
            status = original(verdict)
            return UserStatus(UserState.PENDING, None) if status.state is UserState.UNKNOWN else status
        """,
        "tests/claims/test_sends.py::test_only_acceptance_and_final_rejection_settle_a_job",
    ),
    Bug(
        "another payload under the same idempotency key is taken for the same",
        "_core.idempotency:fingerprint_of",
        'return "0" * 64',
        "tests/core/test_idempotency.py::test_only_equal_payloads_have_the_same_fingerprint",
    ),
    Bug(
        "users whom another process reached are pushed to again",
        "_runs.claim_entry:ClaimEntry._of_others",
        "yield start, stop",
        "tests/claims/test_entry.py::test_a_resend_claims_only_its_own_unknown_users",
    ),
    Bug(
        "users whom another process claimed are sent with the others",
        "_runs.keyed:KeyedClaim._claimed_part",
        "return unit",
        "tests/claims/test_sends.py::test_a_redelivered_job_gets_a_receipt_and_pushes_no_user_again",
    ),
    Bug(
        "a send in flight is released, and its next delivery pushes as well",
        "cli.commands.claims:_ended",
        "return sends",
        "tests/cli/test_claims_command.py::test_a_send_that_may_be_in_flight_stays_claimed_unless_forced",
    ),
    Bug(
        "a claim may expire while its request is in flight",
        "_runs.claim_log:ClaimLog.deadline",
        'return float("inf")',
        "tests/claims/test_sends.py::test_a_call_without_a_deadline_ends_before_its_claim_expires",
    ),
    Bug(
        "a process that was suspended after its claim pushes again, though the claim was released meanwhile",
        "_io.request:ClaimedRequest.prepare",
        "return await self.claim_users()",
        "tests/claims/test_sends.py::test_a_machine_suspended_after_a_claim_pushes_nobody_whom_another_has_pushed_to",
    ),
    Bug(
        "an outcome that could not be stored is forgotten",
        "_runs.claim_log:ClaimLog._forget",
        """
            if not self._uses[entry]:
                del self._uses[entry]
                self._entries.pop(entry.key, None)
        """,
        "tests/claims/test_trouble.py",
    ),
    Bug(
        "the claim of another process is overwritten",
        "claims.store:Put.may_replace",
        "return True",
        "tests/claims/test_sends.py",
    ),
    Bug(
        "a plan that failed on a full disk keeps it full",
        "_runs.run_file.file:RunFilePath.drop",
        "pass",
        "tests/runs/test_journal_disk.py::test_a_failed_creation_leaves_no_file_and_no_lock",
    ),
    Bug(
        "another user exchanges the claim file while it is opened",
        "_io.files:folder_objection",
        "return None",
        "tests/security/test_ownership.py::test_a_claim_store_in_a_folder_that_others_can_write_to_is_refused",
    ),
    Bug(
        "PostgreSQL forgets claims in a crash, as it commits asynchronously",
        "claims.postgres:PostgresClaims._fetch",
        """return await original(self, sql.replace("'off', 'local'", "''"), *values)""",
        "tests/claims/test_each_store.py::test_a_claim_is_committed_durably",
    ),
    Bug(
        "nobody hears that a Redis may evict claims",
        "claims.redis:RedisClaims.risks",
        "return []",
        "tests/claims/test_each_store.py::test_a_redis_that_can_lose_claims_is_a_warning_at_the_first_put",
    ),
    Bug(
        "a database of another program is written to",
        "_sqlite:_recognize",
        "pass",
        "tests/emulator/test_database.py::test_a_file_that_is_not_a_store_of_this_version_is_left_unchanged",
    ),
    Bug(
        "users whom another process claimed are in an Arrow push",
        "arrow._dispatcher:PlanLog.claim",
        """
            await original(self, request, resent=resent)
            return request.positions.users, request.ids
        """,
        "tests/arrow/test_dispatcher.py::test_users_claimed_by_another_process_between_attempts_are_left_to_it",
    ),
    Bug(
        "two writers of one claim both succeed",
        "spark._claims:DirectoryClaims._create",
        """
            original(self, path, data)
            return True
        """,
        "tests/claims/test_stores.py::test_any_sequence_of_puts_matches_a_dictionary",
    ),
    Bug(
        "a plan that Spark wrote to another machine's disk has no users",
        "spark._run:count",
        "return {}",
        "tests/engines/test_folder.py::test_a_plan_that_spark_wrote_elsewhere_is_an_error",
    ),
    Bug(
        "two workers both claim a job in an object store",
        "claims.objects:ObjectClaims._store",
        "return original(self, name, body, condition if name.startswith('self-test') else 'overwrite')",
        "tests/claims/test_objects.py::test_exactly_one_of_two_processes_makes_each_of_a_thousand_claims",
    ),
    Bug(
        "an expired claim in an object store is taken over by two workers",
        "claims.objects:ObjectClaims._store",
        "return original(self, name, body, 'overwrite' if condition else None)",
        "tests/claims/test_objects.py::test_claims_expire_by_the_stores_clock_and_are_taken_over_once",
    ),
    Bug(
        "an object store that ignores conditions keeps claims",
        "claims.objects:ObjectClaims._check",
        """
            with suppress(ConfigurationError):
                original(self)
        """,
        "tests/claims/test_objects.py::test_a_store_that_ignores_a_condition_is_refused",
    ),
    Bug(
        "a signed URL is in the error of an object store",
        "claims.objects:_answer",
        "return request()",
        "tests/claims/test_objects.py::test_trouble_is_named_with_its_fix_and_without_secrets",
    ),
    Bug(
        "each Spark task sends at the full rate",
        "spark._preflight:divided",
        "return options",
        "tests/engines/test_preflight.py::test_the_rate_is_divided_among_the_tasks",
    ),
    Bug(
        "a Spark run is resumed after its claims have expired",
        "spark._preflight:mismatch",
        "return None",
        "tests/engines/test_folder.py::test_a_run_whose_claims_may_expire_is_not_resumed",
    ),
]


AUDIENCES = [
    Bug(
        "a user who is named twice is pushed to twice",
        "_audience.distinct:Distinct.add",
        "return [list(items)]",
        "tests/audience/test_distinct.py::test_ids_come_out_once_in_their_order_and_in_no_empty_batch",
    ),
    Bug(
        "a later row of a user replaces the first",
        "_audience.distinct:Distinct._first",
        "return {(item[0] if self._rows else item): item for item in items}",
        "tests/audience/test_distinct.py::test_whatever_the_memory_the_first_row_of_an_id_comes_out_and_none_of_an_excluded_id",
    ),
    Bug(
        "the users after the last full chunk are dropped",
        "_runs.planner:Planner._add_ids",
        "original(self, ids)",
        "tests/runs/test_runs.py::test_every_user_is_pushed_to_once",
    ),
    Bug(
        "a row without an id is a user",
        "_audience.duckdb_reader:DuckdbSource._select",
        """
            id_sql = id_expression(self._name, self._key, shown_types(db))
            result = db.execute(f"SELECT {', '.join([id_sql, *others])} FROM {VIEW}{tail}")
            while rows := result.fetchmany(size):
                yield rows
        """,
        "tests/audience/test_audience_tables.py::test_a_row_without_an_id_is_an_error_with_its_number",
    ),
    Bug(
        "a query pushes to 123 where the file says 00123",
        "_audience.sql_query:_show_texts",
        'db.execute(f"CREATE TEMP VIEW {VIEW} AS {sql}")',
        "tests/audience/test_sql_query.py::test_ids_are_those_in_the_file_whatever_the_query",
    ),
    Bug(
        "a query reads columns as text that feed no id",
        "_audience.sql_query:_Source.find_text",
        "return original(self, db, None)",
        "tests/audience/test_sql_query.py::test_the_columns_that_feed_no_id_keep_their_types",
    ),
    Bug(
        "a query chooses users by numbers that are sorted as text",
        "_audience.query_plan:Trace.keep",
        "return self.inputs(operator)",
        "tests/audience/test_sql_query.py::test_a_query_that_needs_a_guess_for_its_ids_is_refused_with_the_types_to_state",
    ),
    Bug(
        "a quotation mark in a late row is part of an id",
        "_audience.sql_query:_plain_call",
        "return call",
        "tests/audience/test_sql_query.py::test_quotation_marks_may_come_late_and_be_others",
    ),
    Bug(
        "a query reads another file once the working directory changes",
        "_audience.sql_query:SqlQuery._files",
        "return iter(())",
        "tests/audience/test_sql_query.py::test_a_query_that_names_files_of_another_working_directory_is_refused",
    ),
    Bug(
        "a long field is refused because another library sets a lower limit",
        "_audience.text_files:_csv_module",
        """
            import csv
            return csv
        """,
        "tests/audience/test_audience.py::test_the_field_size_limit_is_not_the_one_that_the_process_shares",
    ),
    Bug(
        "a fraction is an id",
        "_audience.text_files:_id_in",
        "return str(row[context.key])",
        "tests/audience/test_audience.py::test_a_bad_line_is_an_error_with_its_number",
    ),
    Bug(
        "a file that changes while it is read is not noticed",
        "_audience.source:found_files",
        """
            listing = original(path)
            return FileListing(listing.pattern, listing.paths, ())
        """,
        "tests/audience/test_audience.py::test_the_columns_are_those_beside_the_ids",
    ),
    Bug(
        "excluded users are pushed to",
        "_audience.distinct:Distinct._left",
        "return original(self, fresh, set())",
        "tests/audience/test_exclude.py",
    ),
    Bug(
        "an opt-out file whose export failed excludes nobody, and all are pushed to",
        "_audience.text_files:TextFiles.check_filled",
        "return None",
        "tests/audience/test_exclude.py::test_files_without_a_byte_are_refused_when_they_are_read",
    ),
    Bug(
        "a run's name lacks its date, so each later night pushes to nobody",
        "_core.damage:is_filled",
        "return True",
        "tests/client/test_wrong_settings.py",
    ),
    Bug(
        "ids that a spreadsheet has damaged get no warning",
        "_core.damage:damage_in",
        "return None",
        "tests/core/test_damage.py",
    ),
    Bug(
        "among many, an id that a spreadsheet has damaged gets no warning",
        "_core.damage:may_have_damage",
        "return b'E+' not in encoded and original(ids, encoded)",
        "tests/core/test_damage.py",
    ),
    Bug(
        "users that an earlier run may have pushed are pushed again",
        "_runs.report:BroadcastReport._pushed_ids",
        "return iter([[row.user_id for row in self.rows(Outcome.ACCEPTED)]])",
        "tests/audience/test_exclude.py::test_an_earlier_run_excludes_whom_it_pushed_or_may_have_pushed",
    ),
    Bug(
        "a list is shown in a user's text",
        "_core.placeholders:_written",
        "return str(value)",
        "tests/core/test_placeholders.py::test_a_list_or_an_object_is_not_filled_in",
    ),
]


COMMANDS = [
    Bug(
        "JSON is in the letters of the locale",
        "cli.terminal:escaped",
        "return json",
        "tests/cli/test_progress.py::test_json_is_utf_8_in_every_locale",
    ),
    Bug(
        "without a terminal to ask, a command sends",
        "cli.terminal:ask",
        "pass",
        "tests/cli/test_send_command.py::test_without_a_terminal_sending_to_another_machine_needs_yes",
    ),
    Bug(
        "a run that stopped exits like a finished one",
        "cli.commands.runs:_exit_code",
        "return Exit.DONE",
        "tests/cli/test_progress.py::test_the_first_condition_that_applies_sets_the_exit_code",
    ),
    Bug(
        "control characters of the service reach the terminal",
        "cli.terminal:visible",
        "return text",
        "tests/cli/test_terminal.py::test_unsafe_characters_are_replaced",
    ),
    Bug(
        "settings below the working directory are used",
        "cli.settings:_default_file",
        'return Path(environ.get("XDG_CONFIG_HOME") or ".config", "pushsdk", "config.toml")',
        "tests/cli/test_settings.py::test_a_hostile_file_in_the_working_directory_changes_nothing",
    ),
    Bug(
        "the guide reads any file",
        "docs:read",
        'return FOLDER.joinpath(f"{name}.md").read_text(encoding="utf-8")',
        "tests/cli/test_docs_command.py::test_a_page_that_does_not_exist_is_a_key_error",
    ),
]


STAND_INS = [
    Bug(
        "the emulator's rate limit never refuses",
        "emulator.limits:Limiter._take_token",
        "return 0.0",
        "tests/emulator/test_limits.py::test_each_limit_refuses_with_its_status_and_names_no_user",
    ),
    Bug(
        "other sites may control the emulator",
        "emulator.guard:Guard.check_origin",
        "pass",
        "tests/emulator/test_guard.py::test_requests_to_other_names_and_from_other_sites_are_refused",
    ),
    Bug(
        "the emulator answers before it has stored a request",
        "emulator.service:PushService._keep",
        "return None",
        "tests/emulator/test_inboxes.py::test_the_list_is_bounded_and_the_counts_are_not",
    ),
    Bug(
        "a phone shows a push that is not due",
        "emulator.phones:_state",
        'return "delivered"',
        "tests/emulator/test_phones.py::test_a_notification_has_a_state",
    ),
    Bug(
        "two different pushes to a user are a duplicate",
        "emulator.shapes:PushBody.digest",
        "return 0",
        "tests/emulator/test_endpoints.py::test_a_duplicate_is_the_same_content_to_the_same_user",
    ),
    Bug(
        "a fault that never fired passes",
        "testing.inbox:FaultContext.__exit__",
        "self._added.__exit__(kind, error, trace)",
        "tests/testing/test_push_inbox.py::test_every_fault_must_fire",
    ),
    Bug(
        "a test leaves the clock advanced",
        "testing.inbox:PushInbox.close",
        "self._inbox.forget()",
        "tests/testing/test_push_inbox.py::test_closing_empties_the_inbox_and_resets_the_clock",
    ),
]


OBSERVERS_AND_THREADS = [
    Bug(
        "the trace of another process has a gap",
        "otel._spans:ClientObserver._outside_sample",
        "return random() >= self._ratio",
        "tests/otel/test_sampling.py::test_a_shared_request_a_campaign_and_a_broadcast_have_all_of_theirs",
    ),
    Bug(
        "an attempt without a span is not counted",
        "otel._spans:ClientObserver.record",
        "pass",
        "tests/otel/test_sampling.py::test_the_drawn_share_of_accepted_attempts_has_a_span",
    ),
    Bug(
        "a forked child keeps its parent's connections",
        "sync.loop_thread:LoopThread._detach",
        "self.is_inherited = True",
        "tests/sync/test_fork.py::test_a_connection_that_the_parent_closes_is_closed_though_a_child_lives",
    ),
    Bug(
        "a call that Ctrl-C interrupted goes on",
        "sync.loop_thread:LoopThread._cancel",
        "pass",
        "tests/sync/test_interrupts.py::test_an_interrupted_send_in_flight_is_unknown_and_reported",
    ),
    Bug(
        "a client that was dropped keeps its thread",
        "sync.client:_close_dropped",
        "pass",
        "tests/sync/test_lifetime.py::test_a_dropped_client_warns_and_leaves_no_thread",
    ),
]

BUGS = [
    *OUTCOMES,
    *RETRIES,
    *DEADLINES,
    *BATCHES,
    *CANCELLATION,
    *LIMIT,
    *CONNECTIONS,
    *SECRETS,
    *RUNS,
    *CLAIMS,
    *AUDIENCES,
    *COMMANDS,
    *STAND_INS,
    *OBSERVERS_AND_THREADS,
]
