"""Client metrics. Counters are read when a reader collects, so counting adds no cost to a send."""

import threading
import weakref
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from typing import NamedTuple

from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, Histogram, MeterProvider, Observation

from pushsdk._core.outcome import Outcome
from pushsdk._core.results import Counters
from pushsdk._io.engine import Engine
from pushsdk._io.forks import in_child
from pushsdk._io.lifetime import Lifetime
from pushsdk._version import __version__

# The release that made the HTTP conventions stable.
SCHEMA = "https://opentelemetry.io/schemas/1.23.1"
# Buckets that the conventions advise for http.client.request.duration, and buckets for sizes up to Batching.max_users.
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
SIZES = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1000)
# Attributes for the service that a client sends to.
Server = tuple[tuple[str, str | int], ...]


class _ClientCounters(NamedTuple):
    """A client and its counters, which outlive the client."""

    lifetime: weakref.ref[Lifetime]
    counters: Counters
    server: Server


class Instruments:
    """The instruments for one meter provider, shared by all its clients. Read from any thread."""

    def __init__(self, provider: MeterProvider | None) -> None:
        meter = metrics.get_meter("pushsdk", __version__, provider, SCHEMA)
        # A forked child counts only clients made there, and another thread may hold the lock.
        in_child(self, Instruments._start_over)
        self._start_over()

        self.duration: Histogram = meter.create_histogram(
            "http.client.request.duration",
            "s",
            "Duration of HTTP client requests (of each attempt).",
            explicit_bucket_boundaries_advisory=BUCKETS,
        )
        self.batch_size: Histogram = meter.create_histogram(
            "pushsdk.batch.size",
            "{user}",
            "Users per request, for requests of more than one user.",
            explicit_bucket_boundaries_advisory=SIZES,
        )
        self.queue_wait: Histogram = meter.create_histogram(
            "pushsdk.queue.duration",
            "s",
            "Time that the oldest call of a request was queued, for requests that were queued.",
            explicit_bucket_boundaries_advisory=BUCKETS,
        )
        # Observable instruments read the clients' counters.
        meter.create_observable_counter("pushsdk.users", [self._users], unit="{user}", description="Users by outcome.")
        total, gauge = meter.create_observable_up_down_counter, meter.create_observable_gauge
        self._observe(
            total,
            "pushsdk.requests.in_flight",
            "{request}",
            "Attempts in flight.",
            lambda engine: engine.limiter.in_flight,
        )
        self._observe(
            total,
            "pushsdk.requests.limit",
            "{request}",
            "Attempts allowed in flight.",
            lambda engine: engine.limiter.limit,
        )
        self._observe(
            total, "pushsdk.queue.users", "{user}", "Users in queued calls.", lambda engine: engine.backlog.users
        )
        self._observe(
            gauge,
            "pushsdk.retry_budget",
            "{token}",
            "Tokens left of the retry budget of 500; a retry costs 14, or 5 after throttling.",
            lambda engine: engine.sender.budget.tokens,
            combine=min,
        )
        self._observe(
            gauge,
            "pushsdk.rate",
            "{request}/s",
            "Limit on the request rate, by throttles or Rate; absent while there is none.",
            _rate,
        )

    def _start_over(self) -> None:
        self._lock = threading.Lock()
        self._sources: list[_ClientCounters] = []
        # Users by outcome for garbage-collected clients: a counter never goes down.
        self._past: defaultdict[Server, Counter[Outcome]] = defaultdict(Counter)

    def add(self, lifetime: Lifetime, server: Server) -> None:
        """Read this client too, as long as it exists."""
        with self._lock:
            self._fold()
            self._sources.append(_ClientCounters(weakref.ref(lifetime), lifetime.counters, server))

    def _fold(self) -> None:
        """Replace garbage-collected clients by their sums."""
        for source in tuple(self._sources):
            if source.lifetime() is None:
                self._sources.remove(source)
                self._past[source.server].update(source.counters.users)

    def _users(self, options: CallbackOptions) -> Iterable[Observation]:
        with self._lock:
            self._fold()
            sums = deepcopy(self._past)
            for source in self._sources:
                sums[source.server].update(source.counters.users)
        for server, users in sums.items():
            for outcome, count in users.items():
                yield Observation(count, {**dict(server), "pushsdk.outcome": outcome.value})

    def _observe(
        self,
        create: Callable[..., object],
        name: str,
        unit: str,
        description: str,
        read: Callable[[Engine], float | None],
        *,
        combine: Callable[[list[float]], float] = sum,
    ) -> None:
        """Create an instrument for the readings of open clients, which are combined per service."""

        def callback(options: CallbackOptions) -> Iterator[Observation]:
            readings: dict[Server, list[float]] = {}
            with self._lock:
                sources = tuple(self._sources)
            for source in sources:
                lifetime = source.lifetime()
                if lifetime is not None and lifetime.engine is not None and not lifetime.closed:
                    value = read(lifetime.engine)
                    if value is not None:
                        readings.setdefault(source.server, []).append(value)
            for server, values in readings.items():
                yield Observation(combine(values), dict(server))

        create(name, [callback], unit, description)


def _rate(engine: Engine) -> float | None:
    rates = (engine.limiter.rate, engine.settings.rate.requests_per_second)
    return min((rate for rate in rates if rate is not None), default=None)


_global: Instruments | None = None
_by_provider: weakref.WeakKeyDictionary[MeterProvider, Instruments] = weakref.WeakKeyDictionary()


def instruments_of(provider: MeterProvider | None) -> Instruments:
    """Return the instruments for a provider (None: the global provider). A second set would count everything twice."""
    global _global
    if provider is None or provider is metrics.get_meter_provider():
        if _global is None:
            _global = _by_provider.get(metrics.get_meter_provider()) or Instruments(None)
        return _global
    instruments = _by_provider.get(provider)
    if instruments is None:
        instruments = _by_provider[provider] = Instruments(provider)
    return instruments
