"""The recipe for Prometheus: a scrape has the client's counters, by the names in the guide's alerts."""

import re
from urllib.request import urlopen

import pytest
from support.docs import module, page
from support.service_thread import served
from support.worker_frameworks import installed

from pushsdk import MobilePush, RejectedError, RetryPolicy
from pushsdk.emulator import Fault


def test_a_scrape_has_the_outcomes_and_the_durations_of_the_pushes(monkeypatch):
    installed("prometheus_client", "prometheus")
    import prometheus_client
    from prometheus_client.parser import text_string_to_metric_families

    message = MobilePush(title={"en": "s3cret"}, ios_enabled=True)
    server, thread = prometheus_client.start_http_server(0, addr="127.0.0.1")
    with served(monkeypatch) as service, module("prometheus_push")["make_client"](retry=RetryPolicy.none()) as client:
        client.send(["user-1", "user-2"], message)
        service.set_faults([Fault.status(400)])
        with pytest.raises(RejectedError):
            client.send("user-3", message)
        with urlopen(f"http://127.0.0.1:{server.server_port}/metrics") as answer:
            text = answer.read().decode()
    server.shutdown()
    server.server_close()
    thread.join()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    found = {(sample.name, sample.labels.get("outcome")): sample.value for sample in samples}
    for name, outcome, value in (
        ("pushsdk_users_total", "accepted", 2),
        ("pushsdk_users_total", "rejected", 1),
        ("pushsdk_users_total", "unknown", 0),
        ("pushsdk_attempts_total", None, 2),
        ("pushsdk_in_flight", None, 0),
        ("pushsdk_attempt_seconds_count", "accepted", 1),
        ("pushsdk_attempt_seconds_count", "rejected", 1),
    ):
        assert found[name, outcome] == value
    alerts = re.findall(r"\((pushsdk_\w+)", page("logging-and-tracing").section("Prometheus"))
    assert {*alerts} <= {name for name, _ in found}
    assert not re.search("user-|s3cret", text)
