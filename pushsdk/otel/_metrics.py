"""The instruments, and what they read of clients when somebody collects: counting costs a send nothing."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, Histogram, Meter, MeterProvider, NoOpHistogram, Observation

from pushsdk._core.outcome import Outcome
from pushsdk._core.results import Counters
from pushsdk._io.engine import Engine
from pushsdk._io.forks import in_child
from pushsdk._version import __version__

__all__ = ["BUCKETS", "SCHEMA", "Instruments", "Where", "instruments_of"]

# The release that made the HTTP conventions stable.
SCHEMA = "https://opentelemetry.io/schemas/1.23.1"
# As the conventions advise for http.client.request.duration; and for sizes up to Batching.max_users.
BUCKETS: Sequence[float] = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
SIZES: Sequence[float] = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1000)


class Where(NamedTuple):
    """The service that a client sends to: ``server.address`` and ``server.port``."""

    address: str
    port: int

    @property
    def attributes(self) -> dict[str, str | int]:
        """As span and metric attributes."""
        return {"server.address": self.address, "server.port": self.port}


class _Source(NamedTuple):
    """A client whose counters are read; they are kept when it is gone."""

    engine: weakref.ref[Engine]
    counters: Counters
    where: Where


class Instruments:
    """What is measured, of all clients that report to one meter provider. Read from any thread."""

    def __init__(self, provider: MeterProvider | None) -> None:
        meter = metrics.get_meter("pushsdk", __version__, provider, SCHEMA)
        # A forked child counts its own clients only, and another thread may have held the lock.
        in_child(self, Instruments._start_over)
        self._start_over()
        self.duration: Histogram = meter.create_histogram(
            "http.client.request.duration",
            unit="s",
            description="Duration of HTTP client requests: here, of one attempt.",
            explicit_bucket_boundaries_advisory=BUCKETS,
        )
        self.batch_size: Histogram = meter.create_histogram(
            "pushsdk.batch.size",
            unit="{user}",
            description="Users of each request that has more than one.",
            explicit_bucket_boundaries_advisory=SIZES,
        )
        self.queue_wait: Histogram = meter.create_histogram(
            "pushsdk.queue.duration",
            unit="s",
            description="How long the oldest call of a request waited for a place on the wire, where it had to.",
            explicit_bucket_boundaries_advisory=BUCKETS,
        )
        #: Whether an entry goes anywhere. A proxy's may, as soon as a provider is set.
        self.measured: bool = not isinstance(self.duration, NoOpHistogram)
        self._observe(meter)

    def _start_over(self) -> None:
        self._lock = threading.Lock()
        self._sources: list[_Source] = []
        # The users by outcome of clients that are gone: a counter never goes down.
        self._past: dict[Where, dict[Outcome, int]] = {}

    def _observe(self, meter: Meter) -> None:
        """Have what clients count anyway read when somebody collects."""
        meter.create_observable_counter(
            "pushsdk.users", [self._users], unit="{user}", description="Users by what is known of their push."
        )
        up_down = meter.create_observable_up_down_counter
        up_down(
            "pushsdk.requests.in_flight",
            [self._reading(lambda engine: engine.limiter.in_flight)],
            unit="{request}",
            description="Attempts on the wire.",
        )
        up_down(
            "pushsdk.queue.users",
            [self._reading(lambda engine: engine.backlog.users)],
            unit="{user}",
            description="Users that wait for a place on the wire.",
        )
        meter.create_observable_gauge(
            "pushsdk.retry_budget",
            [self._reading(lambda engine: engine.sender.budget.tokens, least=True)],
            unit="{token}",
            description="What is left of the retry budget of 500; a retry costs 5.",
        )
        meter.create_observable_gauge(
            "pushsdk.rate",
            [self._reading(_rate)],
            unit="{request}/s",
            description="The rate that requests are held to, by throttles or Rate; absent while there is none.",
        )

    def add(self, engine: Engine, where: Where) -> None:
        """Read this client too, as long as it lives."""
        with self._lock:
            self._forget()
            self._sources.append(_Source(weakref.ref(engine), engine.counters, where))

    def _forget(self) -> None:
        """Keep of clients that are gone the sums alone."""
        for source in tuple(self._sources):
            if source.engine() is None:
                self._sources.remove(source)
                _count(self._past, source)

    def _users(self, options: CallbackOptions) -> Iterable[Observation]:
        with self._lock:
            self._forget()
            sums = {where: dict(users) for where, users in self._past.items()}
            for source in self._sources:
                _count(sums, source)
        for where, users in sums.items():
            for outcome, count in users.items():
                yield Observation(count, {**where.attributes, "pushsdk.outcome": outcome.value})

    def _reading(
        self, read: Callable[[Engine], float | None], *, least: bool = False
    ) -> Callable[[CallbackOptions], Iterator[Observation]]:
        """What this reads of each open client: together for those of one service, or the least of them."""

        def callback(options: CallbackOptions) -> Iterator[Observation]:
            values: dict[Where, list[float]] = {}
            with self._lock:
                sources = tuple(self._sources)
            for source in sources:
                engine = source.engine()
                if engine is not None and engine.loop is not None and not engine.closed:
                    value = read(engine)
                    if value is not None:
                        values.setdefault(source.where, []).append(value)
            for where, each in values.items():
                yield Observation(min(each) if least else sum(each), where.attributes)

        return callback


def _count(sums: dict[Where, dict[Outcome, int]], source: _Source) -> None:
    users = sums.setdefault(source.where, dict.fromkeys(Outcome, 0))
    for outcome in Outcome:
        users[outcome] += source.counters.users[outcome]


def _rate(engine: Engine) -> float | None:
    assert engine.loop is not None  # noqa: S101 - read of open engines only
    rates = (engine.rate_limiter.rate(engine.loop.time()), engine.settings.rate.requests_per_second)
    return min((rate for rate in rates if rate is not None), default=None)


_global: Instruments | None = None
_given: weakref.WeakKeyDictionary[MeterProvider, Instruments] = weakref.WeakKeyDictionary()


def instruments_of(provider: MeterProvider | None) -> Instruments:
    """Those of this provider, the global one where None: made once, for a second set would count twice."""
    global _global
    if provider is None or provider is metrics.get_meter_provider():
        if _global is None:
            _global = _given.get(metrics.get_meter_provider()) or Instruments(None)
        return _global
    instruments = _given.get(provider)
    if instruments is None:
        instruments = _given[provider] = Instruments(provider)
    return instruments
