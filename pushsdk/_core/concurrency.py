"""The adaptive limit on requests in flight, found from latencies and refusals alone.

The model: ``base`` is the latency without a queue. If a window's answers took longer, requests queue somewhere, in
the service or in this process, and the limit falls in proportion; otherwise it climbs. By Little's law it settles near
throughput x base. A base is never trusted for long: if fewer slots are not faster, there was no queue.
Refusals count by their share, as a few percent happen at any load. They bound starts per second, not slots: how many
slots a rate needs changes with each latency, and a few slots are too coarse.
Pure: times are arguments, in seconds on the caller's clock; no timers, no randomness.
"""

import math

STEADY = 0.1  # a step up is a tenth, then twice as much each time up to a doubling, as in TCP's slow start
ROOM = 0.7  # square roots of the limit, for chance: with no more requests than workers, some workers are idle
SLACK = 0.002  # seconds of queue that are free: turns of an event loop, commits, whole milliseconds of a clock
FEWEST = 16  # slots at first; accepted requests that tell a rate; answers of a window, up to 8 times if uncertain
SHORTEST, LONGEST = 0.02, 8.0  # seconds of a window, and between two measurements of the base (a power of two)
TOLERATED, EVENT = 0.06, 12.0  # a lower share of refusals is stray; so many beyond it are a service limit
FELL = 0.3  # a limit that fell so far must have made answers faster; at 0.6 one client in ten can't tell
LEAST = 0.25  # the share of the rate that refusals leave at least: the count of what was accepted may be too low
CALM = 10.0  # a known rate climbs by a tenth in so many times the seconds that a cut costs, then faster (like CUBIC)


class _Answers:
    """Answers to requests that were sent under the present limit: ``skip`` older ones come first."""

    count = 0
    roots = 0.0
    seconds = 0.0

    def __init__(self, began: float, ends: float, *, skip: int, need: int) -> None:
        self.began, self.ends, self.skip, self.need = began, ends, skip, need


class _Refusals:
    """A score that refusals raise and starts lower, and how many requests were accepted."""

    def __init__(self, at: float, *, waited: float = 0.0, trust: float = 1.0) -> None:
        #: The last cut; the first refusal since the score was zero; the time from which ``accepted`` is counted.
        self.at = self.since = self.counted = at
        #: The pause after the last cut.
        self.waited = waited
        #: How well the rate is known: 1 if ``FEWEST`` accepted requests and a long run told it, else it climbs sooner.
        self.trust = trust
        #: The score; the longest pause that was asked for since the last cut; the gap before a cut for which no rate
        #: was known: accepted requests lead back to it.
        self.score = self.pause = self.lost = 0.0
        #: Requests that were in flight at the last cut: their refusals say nothing about the rate since.
        self.skip = 0
        #: Requests accepted since the last cut, or since others wait without a break; the same, if all had been sent at
        #: the present rate; those since the score was zero: while the service refuses, it takes as many.
        self.accepted = self.projected = self.recently = 0.0
        #: True if the service itself has accepted or refused a request.
        self.answered = False

    def count(self, now: float, ok: bool, waits: bool) -> None:
        """Count the end of a request. If no other waits, the accepted ones tell the demand, not the service's rate."""
        if self.skip:
            self.skip -= 1
        self.answered |= ok
        self.recently += ok
        if waits or self.pause:
            self.accepted += ok
            self.projected += ok
        else:
            self.accepted, self.projected, self.counted = 0, 0.0, now

    def guess(self, now: float, gap: float) -> None:
        """Note a cut from this gap without a known rate: while others waited, not one request was accepted."""
        self.lost = self.lost or gap
        self.at = self.since = self.counted = now
        self.score = EVENT / 2
        self.waited, self.pause = self.pause, 0.0

    def rate(self, now: float, shortest: float) -> tuple[float, float]:
        """Return how many requests per second the service accepts, and how sure that is, from 0 to 1."""
        run = max(shortest, (self.since if self.pause else now) - self.counted)
        # The longer the run, the less it matters if a pause filled a quota, or not.
        sureness = run / (run + max(self.waited, self.pause))
        # The climb was too high at once, or had used up a quota before a pause was asked for: the mean of both.
        projected = self.projected if self.pause else self.accepted
        mean = math.sqrt(self.accepted * projected * sureness * (2.0 - sureness))
        # The first is too low after a climb, the second if the service counts by the second, or longer.
        return max(mean / run, self.recently / max(shortest, now - self.since)), sureness


class AdaptiveLimit:
    """A limit that rises while requests wait and latency stays at its base, and falls as latency or refusals rise."""

    def __init__(self, now: float, *, cap: int, wall: float = 0.0) -> None:
        """``cap`` is never exceeded. ``wall`` is the time of day now, in seconds."""
        self._cap, self._wall = cap, wall - now
        #: Slots in use, and the most that may be.
        self.in_flight, self.limit = 0, min(FEWEST, cap)
        #: Seconds between two starts; 0 unless the service refuses requests.
        self.gap = 0.0
        # The value that ``limit`` climbs to, one slot per answer so that nothing leaves in a burst; the next step up.
        self._goal, self._step = float(self.limit), 1.0
        # Seconds: for an answer without a queue, and for the last window, 0 while unknown.
        self._base, self._latency = math.inf, 0.0
        # While the limit falls: slots and latency before.
        self._before: tuple[float, float] | None = None
        # The next measurement of the base, and the seconds to the one after it.
        self._measure_at, self._period = math.inf, 1.0
        # Seconds that the last measurement took.
        self._took = 0.0
        self._refusals = _Refusals(now)
        self._window = _Answers(now, now + SHORTEST, skip=0, need=FEWEST)

    def started(self, now: float) -> None:
        """Count a request that takes a slot. The first after a pause goes at the new rate."""
        if self._refusals.pause:
            self._cut(now)
        self.in_flight += 1
        refusals = self._refusals
        # Not when it is accepted: while the limit rises, strays are back before as many other answers.
        if 0.0 < refusals.score < EVENT:
            refusals.score = max(0.0, refusals.score - TOLERATED)
        elif self.in_flight == 1 and not refusals.accepted:
            refusals.counted = now  # a rate begins with the first request, not with the idle time before

    def ended(self, now: float, seconds: float | None, ok: bool = True, starved: bool = False) -> None:
        """Count a request that returns its slot.

        ``seconds``: the time that it held the slot; None if that says nothing. Not ``ok``: the service did not do the
        work; such an answer counts only if it was slow. ``starved``: other requests wait for the slot, and for nothing
        else. If none wait and few are in flight, the limit limits nothing, so the latency does not count.
        """
        self._refusals.count(now, ok, starved)
        starved = starved and self.in_flight >= self.limit  # else they wait for the gap
        self.in_flight -= 1
        if ok:
            self._latency = self._latency or seconds or 0.0
            if self.gap:
                self._climb(now)
        if starved and self.limit < int(self._goal):
            self.limit += 1
        self._weigh(now, seconds, ok, starved)

    def _weigh(self, now: float, seconds: float | None, ok: bool, starved: bool) -> None:
        """Measure the base or cut the rate if it is time for that, else add the answer to the window."""
        refusals, window = self._refusals, self._window
        if starved and now >= self._measure_at:
            self._measure(now)
        elif window.skip:
            window.skip, window.began, window.ends = window.skip - 1, now, now + self._round()
        elif refusals.score >= EVENT:
            if not refusals.pause and now >= refusals.since + 2.0 * self._round():
                self._cut(now)
        elif (
            seconds is not None
            # Many requests may queue in the service while none waits here: those that expire make room for others.
            and (starved or (self.in_flight >= FEWEST and not self.gap))
            and (ok or seconds > self._base)  # a fast refusal says nothing
        ):
            self._observe(now, seconds)

    def _climb(self, now: float) -> None:
        """Raise the rate, as a request was accepted."""
        refusals = self._refusals
        if refusals.lost:
            if refusals.accepted:
                self.gap = max(refusals.lost, self.gap / 2)
                if self.gap == refusals.lost:
                    refusals.lost = 0.0
        else:
            calm = CALM * refusals.trust * (self._round() + (refusals.waited or EVENT * self.gap))
            climb = 1.0 + min(1.0, 2 * STEADY * self.gap * (now - refusals.at) / calm**2)
            self.gap, refusals.projected = self.gap / climb, refusals.projected * climb
            if self.gap <= self._known() / self._cap:
                self.gap = 0.0

    def _observe(self, now: float, seconds: float) -> None:
        """Count an answer in the window, and judge the window at its end."""
        window = self._window
        window.count += 1
        window.roots += math.sqrt(seconds)
        window.seconds += seconds
        if window.count >= window.need and now >= window.ends:
            self._judge(now)

    def refused(self, now: float, *, pause: float = 0.0, answered: bool = True) -> None:
        """Count a request that the service refused for now; ``ended`` follows. A pause weighs more than any refusal.

        Not ``answered``: its connection was refused.
        """
        refusals = self._refusals
        refusals.answered |= answered
        # After a jump of the limit, strays come before other answers. A pause concerns whatever was sent since the cut.
        if not (refusals.skip if pause else self._window.skip):
            if not refusals.score:
                refusals.since, refusals.recently = now, 0
            refusals.score += EVENT if pause else 1.0
            refusals.pause = max(refusals.pause, pause)
            if answered and refusals.score >= EVENT:
                # Fast refusals are not to be repeated faster than answers come.
                self.gap = max(self.gap, self._least_gap())

    def _cut(self, now: float) -> None:
        """Lower the rate to what was accepted, and the limit to the slots that the rate needs."""
        refusals, gap, limit = self._refusals, max(self.gap, self._least_gap()), float(self.limit)
        if not refusals.answered:  # nothing listens: fewer requests would not help
            self._refusals = _Refusals(refusals.at)
            return
        if refusals.accepted:
            rate, sureness = refusals.rate(now, self._round())
            self.gap = min(1.0, gap / max(LEAST, min(1.0 - STEADY, gap * rate * (1.0 - STEADY / 2))))
            trust = min(1.0, refusals.accepted / FEWEST) ** 1.5 * sureness
            self._refusals = _Refusals(now, waited=refusals.pause, trust=trust)
            needed = self._known() / self.gap
            # The first answers, which may be all that tells the latency, are the fastest. Refusals are fast, too,
            # so most requests in flight will be accepted.
            limit = min(limit, max(3.0, self.in_flight, needed * (1.0 + STEADY) + ROOM * math.sqrt(needed)))
        else:  # an outage, a quota is used up for now, or nothing waits: that says nothing about the limit
            self.gap = min(1.0, gap / LEAST)
            refusals.guess(now, gap)
        self._refusals.skip = self.in_flight
        self._set(now, limit, skips=True)

    def _judge(self, now: float) -> None:
        """End the window if it tells enough, and set the limit by its latency.

        The mean is over square roots: outliers, hangs and large requests weigh less, and a queue still shows.
        """
        window, before, step, current = self._window, self._before, self._step, self._slots()
        mean = max(window.roots / window.count, 1e-3)
        error = 2.0 * math.sqrt(max(0.0, window.seconds / window.count / mean**2 - 1.0) / window.count)
        measures = before is not None and self._measure_at == math.inf
        if error > max(STEADY, step / 3) and window.count < (2 if measures else 8) * FEWEST:
            window.need = window.count + window.count // 2
            return
        self._latency = latency = mean**2
        if before is not None and current <= (0.75 if measures else FELL) * before[0]:
            self._compare(now, *before)
            return
        if step <= 2 * STEADY or self._base == math.inf:
            self._base = min(self._base, latency * (1.0 + 2.0 * error))
        else:  # while the limit rises fast, fast answers come first
            self._base = max(self._base, min(latency, self._base * (1.0 + error)))
        ratio = (self._base * (1.0 + error) + SLACK) / latency
        if ratio < 1.0 - STEADY / 2:
            self._before = before or (current, latency)
            if ratio < 0.4:
                self._period = 1.0
            self._measure_at = min(self._measure_at, self._tick(now, self._period))
            self._step, least, goal = STEADY, current / 2, current * ratio * (1.0 + STEADY)
        else:
            self._before, self._step = None, min(1.0, max(STEADY, 2.0 * step))
            least, goal = float(self.limit), current * (1.0 + step)
        goal = max(least, min(2.0 * current, goal + ROOM * math.sqrt(current)))
        self._set(now, goal)

    def _measure(self, now: float) -> None:
        """Begin to measure the base: with half the slots, or as few as leave no queue, but three if there are more.

        The wall clock ticks let all clients of a service measure at the same time.
        """
        current = self._slots()
        self._measure_at, self._before = math.inf, (current, self._latency)
        self._set(now, max(min(3.0, current - 1.0), current * min(0.5, 0.7 * self._base / self._latency)))

    def _compare(self, now: float, slots: float, latency: float) -> None:
        """Compare with the latency that more slots had: if fewer are not faster, we had no queue."""
        old, self._took = self._base, now - self._window.began
        if self._latency > latency * math.sqrt(self._slots() / slots):
            self._base = self._latency
            self._measure_at = self._tick(now, LONGEST)  # when other clients measure too, which kept up the queue
        else:
            self._base = min(old, self._latency)
            slots *= self._base / old
        self._period = min(LONGEST, 2.0 * self._period) if 0.8 < self._base / old < 1.25 else 1.0
        self._set(now, slots, skips=True)
        self.limit = int(self._goal)

    def _slots(self) -> float:
        """Return the slots that the answers had: if the limit is not reached, those in use."""
        return min(self._goal, self.limit + 1.0, self.in_flight + 3.0)

    def _round(self) -> float:
        return max(SHORTEST, min(self._base, self._latency))

    def _known(self) -> float:
        return self._latency or SHORTEST

    def _least_gap(self) -> float:
        """Return the seconds between two starts if all slots are in use."""
        return min(1.0, self._known() / self.limit)

    def _set(self, now: float, goal: float, *, skips: bool = False) -> None:
        """Set the limit and begin a window. ``skips``: from here on the limit is compared with nothing before."""
        if skips:
            self._before, self._step = None, STEADY
        self._goal = goal = max(1.0, min(goal, self._cap))
        skips = skips or int(goal) < self.limit
        self.limit = min(self.limit, int(goal))
        need = max(FEWEST, int(goal / 2)) if self._before is None else max(FEWEST // 2, int(goal))
        self._window = _Answers(now, now + self._round(), skip=self.in_flight if skips else 0, need=need)

    def _tick(self, now: float, seconds: float) -> float:
        """Return the next wall clock tick, with a period much longer than the latency and a measurement."""
        while seconds < max(10 * self._latency, 6 * self._took):
            seconds *= 2
        return (math.floor((now + self._wall) / seconds) + 1.0) * seconds - self._wall
