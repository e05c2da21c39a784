"""The metrics of a forked child count the child's sends only."""

import textwrap

from support.programs import run_program

PROGRAM = """
    import os, sys, warnings
    warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from pushsdk import MobilePush, PushClient
    from pushsdk.otel import instrument
    from pushsdk.otel._metrics import instruments_of

    HELLO = MobilePush(ios_enabled=True, body={"en": "hi"})
    reader = InMemoryMetricReader()
    meters = MeterProvider([reader], shutdown_on_exit=False)
    client = instrument(PushClient(), meter_provider=meters)

    def tell(who):
        resources = reader.get_metrics_data().resource_metrics
        metrics = {each.name: each for of in resources for scope in of.scope_metrics for each in scope.metrics}
        users = {
            point.attributes["pushsdk.outcome"]: point.value for point in metrics["pushsdk.users"].data.data_points
        }
        budgets = len(metrics["pushsdk.retry_budget"].data.data_points)
        os.write(1, f"{who} {users['ACCEPTED']} {budgets}\\n".encode())

    client.send(["a", "b"], HELLO)
    # As another thread may, that does not live on in the child.
    instruments_of(meters)._lock.acquire()
    pid = os.fork()
    if not pid:
        client.send(["c", "d", "e"], HELLO)
        tell("child")
        sys.exit(0)
    instruments_of(meters)._lock.release()
    assert os.waitpid(pid, 0)[1] == 0
    client.send("f", HELLO)
    tell("parent")
"""


def test_a_child_counts_its_own_users_and_the_parent_its_own(service):
    assert run_program(textwrap.dedent(PROGRAM)) == (0, "child 3 1\nparent 3 1\n", "")
