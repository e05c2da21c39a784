"""The time that an attempt is likely to take, and the silence from a service that no longer responds.

Pure: times are arguments, in seconds on the caller's clock.
"""

import math
from itertools import count

# RFC 6298 smooths a mean and a mean deviation by these shares of each new value. RFC 7323 (appendix G) divides the
# shares by half the values in one round trip.
MEAN_SHARE, DEVIATION_SHARE = 1 / 8, 1 / 4
# RFC 6298 waits for four deviations. If latencies are lognormal with sigma 1, 3 % take longer than that, and 1 % longer
# than eight.
DEVIATIONS = 8.0
# The least to add to the mean, in seconds: event loops and timers are late by as much.
GRANULARITY = 0.02
# Less variance in the requests in flight doesn't tell how much longer an attempt takes beside others.
LEAST_SPREAD = 0.5
# The next probe starts so many times as long after the last start as that came after the silence began.
PROBE_AFTER = 3.0
# While other requests hang, the probe may be one more: then the next one starts sooner, after so many times as long.
PROBE_AFTER_HANG = 1.0
# If no request is in flight, the next probe starts sooner: after once as long, but so many seconds at most.
PACE = 0.5
# So many attempts in a row that the service ends without a response are a silence, too. Fewer may be one caller's
# message that crashes it. If 4 out of 5 attempts end so, 1 row in 1,000 is as long.
BREAKS = 32
# While requests hang, a silence needs so many more responses that are due: these may hang, too.
DOUBTFUL = 2
# If a larger share hangs, the service may answer the newest first: then the others are its queue.
MOST_HANGING = 0.5


Sent = tuple[float, int, int]
"""The time of an attempt's first byte, the requests that waited for a response then, with this one, and its number."""
_numbers = count()


class _Line:
    """A line fitted to the seconds of attempts, by how many requests are in flight."""

    def __init__(self) -> None:
        #: The mean crowd; seconds for each further request in flight, if they queue.
        self.crowd = self.slope = 0.0
        # The variance of the crowd, the variance of the seconds, and the covariance.
        self._spread = self._scatter = self._joint = 0.0

    def fit(self, error: float, more: float, share: float) -> None:
        """Fit the line by least squares, as the mean is smoothed."""
        self.crowd += more * share
        self._spread += (more * more - self._spread) * share
        self._scatter += (error * error - self._scatter) * share
        self._joint += (error * more - self._joint) * share
        if self._joint > 0.0 and self._spread > LEAST_SPREAD:
            self.slope = self._joint / self._spread

    def queued(self, usual: float) -> float:
        """Return how much an attempt's usual seconds are due to a queue, as a share, if that is certain."""
        # The coefficient of determination; both are 0 after thousands of attempts that took exactly as long.
        explained = self.slope * self._joint
        certain = explained / (max(explained, self._scatter) or 1.0)
        return min(1.0, self.slope * self.crowd / usual) * certain


class AttemptTimes:
    """Estimate of the calls that can still be answered in time. Holds requests back while the service is silent.

    An attempt's time runs from its first byte to its response. Accepted responses lower or raise the estimate,
    anything else can only raise it. Without an estimate, before the first accepted response, every call is begun.

    If attempts take longer beside others, they queue in the service. While that queue grows, the mean is too low, so a
    line is fitted: the mean seconds, and the seconds for each further request in flight.

    The service is silent if responses are due and none comes, or if it ends a long row of attempts without a response.
    Then a request starts only as a probe, which carries one call: now and then, more often if nothing is in flight. An
    attempt that ends unanswered in a silence stalls the client: the silence lasts until a response comes.

    If only some attempts find no response, as one of several servers hangs, the others overtake them. An attempt that
    was overtaken and takes longer than any other is not in a queue: it tells nothing about the others, and hangs.
    """

    def __init__(self) -> None:
        # Requests for calls that hang; the share of the last attempts that did.
        self._hanging, self._share = 0, 0.0
        # The others that wait for a response, in the order in which they began: number and time.
        self._waiting: dict[int, float] = {}
        # The last number that was accepted: it has overtaken those before. A refusal overtakes none, as it is faster.
        self._answered = 0
        #: An attempt's mean seconds, and the seconds that it does not exceed in all likelihood; 0 while unknown.
        self.usual = self.likely = 0.0
        #: True after an attempt that ended unanswered during a silence, until a response comes.
        self.is_stalled = False
        # Attempts that the service has ended without a response, since the last one.
        self._broken = 0
        # The mean deviation from the line.
        self._deviation = 0.0
        self._line = _Line()
        # Time of the last response, or of the first byte since when responses are due.
        self._quiet_since = -math.inf
        #: Time of the last start: during a silence, of a probe. Set by the limiter.
        self.started_at = -math.inf

    def is_silent(self, now: float) -> bool:
        """Return True if responses are due for so long that the service counts as silent."""
        late = now - self._quiet_since - self.usual
        if self.is_stalled or late <= GRANULARITY or not self.usual:
            return self.is_stalled
        # The first of several responses comes earlier than a single one.
        due = len(self._waiting) - (DOUBTFUL if self._hanging else 0)
        return late * due > self.likely - self.usual

    def not_before(self, now: float, in_flight: int) -> float:
        """Return the time before which no request starts, with so many in flight."""
        # Between a few breaks and a long row of them, the next attempt starts at once: it tells whether there are more.
        if not self.is_silent(now) or (0 < self._broken < BREAKS and not in_flight):
            return now
        # Negative, so that a probe starts now, if none has in this silence.
        quiet = self.started_at - self._quiet_since
        if not in_flight:
            return self.started_at + min(quiet, PACE)
        return self.started_at + quiet * (PROBE_AFTER_HANG if self._hanging else PROBE_AFTER)

    def needed(self, others_wait: bool) -> float:
        """Return the seconds that a call must have left to be begun.

        If others wait, the slot goes to a call that is answered in all likelihood. If none wait, a call that is
        usually answered in time is begun, and the only one in flight in any case: it measures. If requests queue in
        the service, the others wait there.
        """
        waiting, line = len(self._waiting), self._line
        if not waiting and (self.is_stalled or not others_wait):
            return 0.0
        if not line.slope:
            return self.likely if others_wait else self.usual
        certainty = 1.0 if others_wait else line.queued(self.usual)
        longer = line.slope * max(0.0, waiting + 1 - line.crowd)
        return self.usual + certainty * (self.likely - self.usual) + longer

    def sent(self, now: float) -> Sent:
        """Note a call's first request byte."""
        if not (self._waiting or self.is_stalled):
            self._quiet_since = now
        number = next(_numbers)
        self._waiting[number] = now
        return now, len(self._waiting), number

    def ended(self, now: float, sent: Sent | None, status: int | None) -> bool:
        """Note an attempt's end: its first byte, or None if it is not measured; and the response's status.

        The status is 0 if the service ended the attempt without a response, None if this client did. Return True if the
        attempt hung.
        """
        if status:
            self.is_stalled, self._broken = False, 0
            self._quiet_since = now
        if sent is None:
            return False
        began, crowd, number = sent
        seconds = now - began
        is_overtaken = number < self._answered and seconds > self.likely
        self._share += (is_overtaken - self._share) / BREAKS
        if is_overtaken:
            self.hanging(now)
        hung = number not in self._waiting
        if not (status or hung):
            self._note_unanswered(now, status == 0)
        is_accepted = status and status < 300
        if is_accepted or not (self.is_stalled or hung or seconds <= self.usual):
            self._measure(seconds, crowd)
        self._hanging -= self._waiting.pop(number, None) is None
        if is_accepted and number > self._answered:
            self._answered = number
        return hung

    def _note_unanswered(self, now: float, is_broken: bool) -> None:
        self._broken += is_broken
        # In a stall its time tells how long the silence lasts, not how long an attempt takes.
        self.is_stalled = self._broken >= BREAKS or self.is_silent(now) or not self.usual

    def _measure(self, seconds: float, crowd: int) -> None:
        """Move the estimate towards an attempt's time."""
        usual, waiting, line = self.usual, len(self._waiting), self._line
        share = 2.0 / waiting if waiting > 2 else 1.0
        error, more = seconds - usual, crowd - line.crowd
        if usual:
            self._deviation += (abs(error - line.slope * more) - self._deviation) * DEVIATION_SHARE * share
            usual += error * MEAN_SHARE * share
            line.slope = 0.0
            if usual > GRANULARITY:  # a shorter queue makes nothing late
                line.fit(error, more, MEAN_SHARE * share)
        else:
            usual, self._deviation, line.crowd = seconds or 1e-6, seconds / 2, crowd
        margin = DEVIATIONS * self._deviation
        self.usual, self.likely = usual, usual + (margin if margin > GRANULARITY else GRANULARITY)

    def hanging(self, now: float) -> int:
        """Return how many requests for calls hang: overtaken, they take longer than any does in all likelihood."""
        waiting, before = self._waiting, now - self.likely
        while waiting and self._share < MOST_HANGING:
            first = next(iter(waiting))
            if first > self._answered or waiting[first] >= before:
                break
            del waiting[first]
            self._hanging += 1
        return self._hanging

    def withdrawn(self, sent: Sent) -> None:
        """Note that an attempt's first byte did not leave after all."""
        self._hanging -= self._waiting.pop(sent[2], None) is None
