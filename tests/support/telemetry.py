"""OpenTelemetry for tests: an SDK that exports into memory, its spans as a tree in text, and none of them left open."""

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider

from pushsdk import AsyncPushClient
from pushsdk.otel import instrument
from support.fake_service import MESSAGE, outcome_of, start


class _Memory(SpanProcessor):
    """Keeps every span from its start."""

    def __init__(self):
        self.started = []

    def on_start(self, span, parent_context=None):
        self.started.append(span)


class Telemetry:
    """A tracer and a meter provider of a test's own."""

    def __init__(self, sampler=None):
        self._memory = _Memory()
        self.tracers = TracerProvider(sampler=sampler, shutdown_on_exit=False)
        self.tracers.add_span_processor(self._memory)
        self.reader = InMemoryMetricReader()
        self.meters = MeterProvider([self.reader], shutdown_on_exit=False)
        self.tracer = self.tracers.get_tracer("test")

    def instrument(self, client, **options):
        return instrument(client, tracer_provider=self.tracers, meter_provider=self.meters, **options)

    def span(self, name):
        """A span of the application, current in the block."""
        return self.tracer.start_as_current_span(name)

    @property
    def spans(self):
        """All spans, in the order they began."""
        return list(self._memory.started)

    @property
    def open(self):
        """The spans that have not ended."""
        return [span for span in self._memory.started if span.end_time is None]

    @property
    def attempts(self):
        """The attributes of each attempt."""
        return [dict(span.attributes) for span in self.spans if span.name == "POST"]

    def tree(self):
        return tree(self.spans)

    def points(self, name):
        """Return the data points of a metric, which may be none."""
        return [point for metric in self.metrics() if metric.name == name for point in metric.data.data_points]

    def metrics(self):
        data = self.reader.get_metrics_data()
        resources = data.resource_metrics if data else []
        return [metric for resource in resources for scope in resource.scope_metrics for metric in scope.metrics]

    def close(self):
        self.tracers.shutdown()
        self.meters.shutdown()


def tree(spans):
    """Return the spans as lines, each under its parent, with their main attributes."""
    spans = list(spans)
    names = {span.context.span_id: span.name for span in spans}
    lines = []

    def draw(parent, indent):
        children = [span for span in spans if (span.parent.span_id if span.parent else None) == parent]
        for number, span in enumerate(children, 1):
            last = number == len(children)
            branch = "" if parent is None else "└─ " if last else "├─ "
            lines.append(f"{indent}{branch}{span.name}{''.join(f'  {note}' for note in _notes(span, names))}")
            draw(span.context.span_id, indent + ("" if parent is None else "   " if last else "│  "))

    draw(None, "")
    return "\n".join(lines)


def _notes(span, names):
    attributes = span.attributes or {}
    for name, word in (
        ("http.response.status_code", ""),
        ("pushsdk.outcome", ""),
        ("error.type", "error="),
        ("http.request.resend_count", "resend="),
        ("pushsdk.calls", "calls="),
        ("pushsdk.users", "users="),
        ("pushsdk.links_left_out", "left out="),
    ):
        if name in attributes:
            yield f"{word}{attributes[name]}"
    if span.links:
        yield "links: " + ", ".join(names.get(link.context.span_id, "?") for link in span.links)


def watched(telemetry, service, **options):
    """A client as `client_of` makes it, instrumented before it is opened."""
    settings = {name: options.pop(name) for name in ("propagate", "sample_accepted") if name in options}
    options = {"base_url": "https://push.example/api", "api_key": "secret-key", **options}
    return telemetry.instrument(service.serve(AsyncPushClient(**options)), **settings)


async def sent(telemetry, service, *users, **options):
    """Send to each of the users in turn by a watched client, and return how the sends ended."""
    async with watched(telemetry, service, **options) as client:
        return [await outcome_of(start(client.send(user, MESSAGE))) for user in users or "a"]


def texts_of(telemetry):
    """Everything that would leave the process: all spans and all metrics, in full."""
    spans = [span.to_json() + repr([event.attributes for event in span.events]) for span in telemetry.spans]
    return "\n".join([*spans, *(metric.to_json() for metric in telemetry.metrics())])
