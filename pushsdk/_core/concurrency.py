"""The adaptive limit on requests in flight, found from latencies and refusals alone.

Pure: times are arguments, in seconds on the caller's clock; no timers, no randomness.
"""

import math

# Slots at first; fewest by latency. After refusals, starts are paced below the third: whole slots are too coarse.
START, LEAST, PACED = 16, 4, 16
# A step up is a tenth, then twice as much each time up to a doubling; and so many square roots of the limit for chance.
STEADY, FASTEST, ROOM = 0.1, 1.0, 0.7
# Answers of a window: until their mean is known to a tenth, at most 128.
FEWEST, MOST, KNOWN_TO = 16, 128, 0.1
# An answer counts as 8 times the base at most. Requests that are not back count a third by Little's law.
CLIP, UNSEEN = 8.0, 3.0
# base / latency: below the first there is a queue; below the second the next tick measures the base again.
QUEUED, CONGESTED = 0.95, 0.3
# Seconds between two measurements of the base, and if it was far off.
PERIOD, SOON = 10.0, 1.0
HALF = 0.5  # of the wire during a measurement; of the limit at least between two
LOOK_LATENCIES, LOOK_SECONDS = 1.25, 0.1  # a measurement lasts so many latencies, and at least so long
FELL, ROSE = 0.75, 2.0  # a base beyond these is measured again soon; it rises by no more at once
# A refusal leaves 95 %, a Retry-After 92 %, or down to half soon after a pause. They stop the climb for 10 s or 20 s.
# Until a minute has passed, the climb is slow: in 20 s to the limit before.
AFTER_REFUSAL, AFTER_PAUSE, REST, WARY, RETURN = 0.95, 0.92, 10.0, 50.0, 20.0
# If its delay adds more than the first to latency, our own event loop is the bound: more than so many in flight save
# nothing then, while fewer make each turn of the loop, and each commit of a run, serve fewer requests.
OWN, ENOUGH = 0.1, 64
SLOWEST = 1.0  # requests per second: without requests nothing would notice the end of an outage
OUTAGE = 0.97  # the share of refusals from which the limit before is not to blame
# Refusals of less than this share that three quarters of the limit do not avoid are stray: independent of the load.
STRAY, MANY, STRAY_FLOOR = 0.12, 0.3, 0.75


class AdaptiveLimit:
    """Raises ``limit`` while requests wait and latency stays at its base; lowers it as latency or refusals rise.

    The base is the latency of a half-empty wire. While there is a queue, the limit is halved for a moment every ten
    seconds to measure the base, on the wall clock, so that all clients of a service measure at the same time.
    """

    def __init__(self, now: float, *, cap: int, wall: float = 0.0) -> None:
        """``cap`` is never exceeded. ``wall`` is the time of day now, in seconds."""
        self._cap, self._wall = cap, wall - now
        #: Slots in use, and the most that may be.
        self.in_flight, self.limit = 0, min(START, cap)
        #: Seconds between two starts; 0 unless the service refuses what so few slots send, or asked for a pause.
        self.gap = 0.0
        # The value that ``limit`` climbs to, and the least value before the next measurement of the base.
        self._goal, self._floor, self._step = float(self.limit), self.limit * HALF, FASTEST
        # Seconds, 0 if unknown: of an empty wire, and of the last window. How much answers differ (CV squared).
        self._base = self._latency = self._spread = 0.0
        # While the base is measured: the limit before, and the earliest end. The slots that the base was measured with.
        self._look: tuple[float, float] | None = None
        self._measured_with = self.limit
        self._look_at, self._queued, self._congested = math.inf, False, False
        # The last cut after a refusal, and since then: answers, refusals, and seconds of accepted requests.
        self._cut, self._answers, self._refusals, self._accepted = -math.inf, 4 * FEWEST, 0, 0.0
        # The ends of the last pause and of the time without a climb; the limit before the last cut (0 after an outage).
        self._resumed, self._rest_until, self._before_refusal = -math.inf, -math.inf, 0.0
        # The limit from which cuts have avoided no refusals, and the time until which stray refusals are ignored.
        self._stray_from, self._stray_until = 0.0, -math.inf
        # Latency of each size of request (powers of two of its users) relative to the others.
        self._weights: dict[int, float] = {}
        # True if our own event loop was the bound in the last window.
        self._is_own = False
        self._at = now
        self._begin()
        self._skip = START

    def _begin(self) -> None:
        """Begin a window. Requests in flight were sent under another limit, so they are not counted."""
        # Answers to skip; count and sums of latencies; in flight x seconds; seconds of our own event loop's delay.
        self._skip, self._began = self.in_flight, self._at
        self._count, self._sum, self._squares, self._area, self._own = 0, 0.0, 0.0, 0.0, 0.0
        # For each size: count and sum of latencies.
        self._sizes: dict[int, list[float]] = {}
        usual = FEWEST // 4 if self._is_paced() else max(FEWEST, int(self._goal * HALF))
        self._need = usual if self._look is None else max(FEWEST // 2, self.limit)

    def started(self, now: float) -> None:
        """Count a request that takes a slot."""
        self._area += self.in_flight * (now - self._at)
        self._at = now
        self.in_flight += 1

    def ended(
        self, now: float, seconds: float | None, users: int = 1, *, ok: bool = True, waits: float = 0.0,
        late: float = 0.0, starved: bool = False,
    ) -> None:  # fmt: skip
        """Count a request that returns its slot.

        ``seconds`` is its latency; None if that says nothing about the service. ``waits`` is the part of its time that
        the client spent itself. ``late``: the answer may have waited so long for our own event loop; that is deducted,
        down to the base. Not ``ok``: the service did not do the work; such an answer counts only if it was slow.
        ``starved``: other requests wait for the slot, and for nothing else. If none wait, the limit limits nothing, so
        the latency does not count.
        """
        self._area += self.in_flight * (now - self._at) - waits
        self._at = now
        self.in_flight -= 1
        self._answers += 1
        if ok:
            self._accepted += self._latency if seconds is None else seconds
        if starved and self.limit < self._goal:
            self.limit += 1
        if now >= self._look_at:
            self._begin_look(now)
        if self._skip > 0:
            self._skip, self._area = self._skip - 1, 0.0
            return
        if seconds is None or not starved:
            self._area -= seconds or 0.0
            return
        seconds = max(seconds, 1e-6)
        size = users.bit_length()
        weight = self._weights.get(size)
        if weight is None:
            self._weights[size] = weight = seconds / self._latency if self._latency else 1.0
        base = self._base
        if base and seconds > base * weight:
            own = min(late, seconds - base * weight)
            seconds -= own
            self._area -= own
            self._own += own / weight
        scaled = seconds / weight
        if not ok and scaled <= base:
            return
        if base and scaled > base * CLIP:
            scaled = base * CLIP
            seconds = scaled * weight
        totals = self._sizes.get(size)
        if totals is None:
            totals = self._sizes[size] = [0.0, 0.0]
        totals[0] += 1.0
        totals[1] += seconds
        self._count += 1
        self._sum += scaled
        self._squares += scaled * scaled
        if self._count >= self._need:
            self._judge(now)

    def refused(self, now: float, began: float, *, pause: float = 0.0, paced: bool = True) -> None:
        """Count a request, begun then, that the service refused for now. ``ended`` follows, without seconds.

        ``paced``: the service counts requests per second, so the rate may fall below that of a single slot.
        """
        self._refusals += 1
        share = self._refusals / max(self._answers, self._refusals)
        sure = share > MANY or self._answers >= 4 * FEWEST or now > self._cut + 4.0 * SOON
        few = not pause and (self._answers < FEWEST or not sure)
        stray = share < STRAY and not pause
        same = began <= self._cut or now < self._cut + 2.0 * self._latency  # a fast refusal precedes slow answers
        if same or few or self._look is not None or (stray and now < self._stray_until):
            return
        limit = self._exact()
        if now > self._rest_until or not stray:
            self._stray_from = limit
        if paced and share < OUTAGE:
            self._before_refusal = limit
        goal, rest = limit * AFTER_REFUSAL, REST
        if pause:  # costs more than a refusal
            since = max(0.0, now - self._resumed) / pause  # a limit that is far too high is refused soon
            goal, rest = limit * min(AFTER_PAUSE, 1.0 - HALF / (1.0 + 3.0 * since)), 2.0 * REST
            self._resumed = now + pause
        elif share >= STRAY and now <= self._cut + 2.0 * REST:
            # Little's law: the mean number of accepted requests in flight is what the service takes.
            goal = min(goal, max(limit * HALF, self._accepted / (now - self._cut)))
        self._rest_until = now + (rest if share < OUTAGE else SOON)
        self._cut, self._step, self._answers, self._refusals, self._accepted = now, 0.0, 0, 0, 0.0
        self._stray_until = -math.inf
        if stray and goal < STRAY_FLOOR * self._stray_from:
            goal, self._rest_until, self._stray_until = self._stray_from, -math.inf, now + REST
        self._floor = min(self._floor, goal)
        # After a pause the wire is empty: filling it at once would be a burst.
        self._set(goal, least=0.0 if paced else LEAST, paced=pause > 0)

    def _set(self, goal: float, *, least: float = LEAST, paced: bool = False) -> None:
        latency = self._latency or LOOK_SECONDS
        self._goal = max(min(least, self._goal, self._cap), min(goal, self._cap), min(1.0, SLOWEST * latency))
        # Down at once, up by one slot per answer: nothing leaves in a burst.
        self.limit = max(1, min(self.limit, int(self._goal)))
        self.gap = min(1.0 / SLOWEST, latency / self._goal) if paced or self._is_paced() else 0.0
        if self._look is None:
            self._floor = max(self._floor, min(self.limit, self._goal) * HALF)
        self._begin()

    def _is_paced(self) -> bool:
        return self._before_refusal > 0 and self._goal < PACED

    def _exact(self) -> float:
        """Return the goal if the limit has reached it, else the limit."""
        return float(self.limit) if self.limit < int(self._goal) else self._goal

    def _judge(self, now: float) -> None:
        """End the window if it tells enough, and set the limit by its mean latency."""
        count, look = self._count, self._look
        mean = max(self._sum / count, 1e-6)
        spread = max(0.8 * self._spread, self._squares / count / (mean * mean) - 1.0, 0.0)
        error = mean * math.sqrt(spread / count)
        unknown = error > KNOWN_TO * mean and count < MOST and not self._is_paced()
        if unknown or (look is not None and now < look[1]):
            self._need = count + max(1, count // 2)
            return
        self._spread, self._is_own = spread, self._own > OWN * self._sum
        self._weigh(mean)
        flight = self._area / count  # seconds; above the mean while the limit rises, as fast answers come first
        unseen = flight / UNSEEN
        if look is not None:
            self._end_look(now, look[0], mean, unseen)
            return
        if not self._base:
            self._base, self._look_at = max(mean, flight), self._tick(now, SOON)
        self._base = min(self._base, max(mean, flight) + 2.0 * error)
        self._latency = max(mean, unseen)
        ratio = min(1.0, (self._base + error) / self._latency)
        if ratio < QUEUED:
            self._queued = True
            if ratio < CONGESTED:
                self._look_at, self._congested = min(self._look_at, self._tick(now, SOON)), True
        self._set(self._next_goal(now, ratio))

    def _next_goal(self, now: float, ratio: float) -> float:
        """Return the limit after a window of this base / latency, in which requests waited for a slot."""
        limit = self._exact()
        if now < max(self._rest_until + WARY, self._stray_until):
            seconds = 0.0 if now < self._rest_until else now - self._began
            rise = max(limit, self._before_refusal) * min(1.0, seconds / (SOON if now < self._stray_until else RETURN))
            return max(self._floor, limit * ratio if ratio < QUEUED else limit + rise)
        step = STEADY if ratio < QUEUED else self._step
        self._step = step if ratio < QUEUED else min(FASTEST, max(STEADY, 2.0 * step))
        goal = min(2.0 * limit, limit * ratio * (1.0 + step) + ROOM * math.sqrt(limit))
        if self._is_own:
            goal = sorted((goal, limit, ENOUGH))[1]  # between the limit and ENOUGH
        return max(self._floor, goal)

    def _weigh(self, mean: float) -> None:
        """Correct the weights of the sizes in this window: they waited in the same queue."""
        if len(self._sizes) > 1:
            for size, (count, total) in self._sizes.items():
                weight = self._weights[size]
                self._weights[size] = weight + (total / count / mean - weight) * count / (count + FEWEST)

    def _tick(self, now: float, seconds: float) -> float:
        """Return the next tick of the wall clock, of a period that is much longer than the base."""
        while seconds < self._base * (10.0 if seconds >= PERIOD else 4.0):
            seconds *= 2.0
        return (math.floor((now + self._wall) / seconds) + 1.0) * seconds - self._wall

    def _begin_look(self, now: float) -> None:
        """Measure the base by a half-empty wire, if there was a queue since the last time."""
        self._look_at = self._tick(now, PERIOD if self._measured_with == self._cap else SOON)
        if self._queued and not self._is_own:
            self._queued, self._look_at = False, math.inf
            limit = self._exact()
            self._look = limit, now + max(LOOK_SECONDS, LOOK_LATENCIES * self._latency)
            self._set(min(limit * self._base / self._latency, self._measured_with) * HALF)

    def _end_look(self, now: float, before: float, latency: float, unseen: float) -> None:
        base = self._base
        if not self._congested or unseen > latency:
            latency = min(latency, base)  # other clients do not measure now, or most requests wait somewhere
        self._congested = latency >= FELL * base
        self._queued = not self._congested  # fewer slots made it faster, so there was a queue
        self._look_at = self._tick(now, PERIOD if FELL * base <= latency <= ROSE * base else SOON)
        self._look, self._base, self._measured_with = None, min(latency, ROSE * base), self._cap
        limit = max(self.limit, before * min(1.0, self._base / self._latency), self._floor * HALF)
        self._step, self._floor = STEADY, limit * HALF
        self.limit = max(1, int(min(limit, before)))
        self._set(limit if now < self._rest_until else limit * (1.0 + STEADY) + ROOM * math.sqrt(limit))
