"""The page on orchestrators: its flow fails, is killed and starts anew in a real Prefect, as the service counts it."""

import os
import socket
import subprocess
import sys
from types import SimpleNamespace

import pytest
from support.docs import MODULES
from support.engine_oracle import oracle
from support.kill_judge import verdict
from support.programs import address_of
from support.servers import Server, free_port
from support.worker_frameworks import installed

from pushsdk import read_report
from pushsdk.emulator import Fault

USERS = 20_000
# In many requests, few at a time: there is a middle in which to be killed.
IN_THE_MIDDLE = "PushClient(batching=Batching(max_users=50), limits=Limits(in_flight=4))"
HANGS = 300


@pytest.fixture
def prefect(tmp_path):
    """The environment of a flow, with the address of a Prefect server."""
    installed("prefect", "prefect")
    port = free_port()

    def answers():
        with socket.socket() as sock:
            return sock.connect_ex(("127.0.0.1", port)) == 0

    alone = {"HOME": str(tmp_path), "PREFECT_HOME": str(tmp_path / "prefect"), "DO_NOT_TRACK": "1"}
    env = {**os.environ, **alone, "PREFECT_SERVER_ANALYTICS_ENABLED": "false"}
    command = [sys.executable, *f"-m prefect server start --host 127.0.0.1 --port {port} --no-ui".split()]
    url = f"http://127.0.0.1:{port}/api"
    with Server(url, answers, command, signal="KILL", env=env):
        yield {**env, "PREFECT_API_URL": url}


def test_a_flow_that_fails_is_killed_and_starts_anew_pushes_to_each_user_once(tmp_path, prefect):
    hastily = MODULES["prefect_flow.py"].replace("[60, 600, 3600]", "0").replace("PushClient()", IN_THE_MIDDLE)
    (tmp_path / "prefect_flow.py").write_text(hastily.replace("import Audience", "import Batching, Limits, Audience"))
    (tmp_path / "users.csv").write_text("user_id\n" + "".join(f"user-{number}\n" for number in range(USERS)))
    with oracle() as service:
        env = {**prefect, **address_of(service), "RUNS": str(tmp_path), "USERS": "users.csv"}

        def flow():
            return subprocess.Popen([sys.executable, "prefect_flow.py", "2026-11-28"], cwd=tmp_path, env=env)

        service.begin([Fault.status(401)])
        with flow() as process:
            assert process.wait(HANGS) == 1
        assert service.requests >= 4  # the flow's task, and its retries
        assert service.users() == {}
        service.begin([Fault.delay(0.2)])
        with flow() as process:
            service.until(20)
            process.kill()
        service.fail([])
        with flow() as process:
            assert process.wait(HANGS) == 0
        pushed = service.users()
    rows = read_report(tmp_path / "2026-11-28.run").rows()
    totals = verdict((row.outcome.name, pushed.get(row.user_id, 0), 0) for row in rows)
    assert totals.total() == USERS
    assert totals.keys() <= {"ACCEPTED", "UNKNOWN"}


def test_the_task_of_airflow_fails_for_users_that_are_left_and_for_a_run_without_a_day(tmp_path, monkeypatch):
    for name, value in {"RUNS": str(tmp_path), "USERS": str(tmp_path / "users.txt")}.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "users.txt").write_text("user-1\n")
    plain = SimpleNamespace(dag=lambda **_: lambda function: function, task=lambda **_: lambda function: function)
    monkeypatch.setitem(sys.modules, "airflow", SimpleNamespace(sdk=plain))
    monkeypatch.setitem(sys.modules, "airflow.sdk", plain)
    code = MODULES["airflow_dag.py"].removesuffix("\nmorning()\n")
    names = {}
    exec(code, names)
    with oracle() as service:
        monkeypatch.setenv("PUSHSDK_BASE_URL", service.base_url)
        monkeypatch.setenv("PUSHSDK_API_KEY", service.api_key)
        with pytest.raises(ValueError, match="with a logical date"):
            names["push"]()
        service.begin([Fault.status(401)])
        with pytest.raises(RuntimeError, match=r"1 users are left: .*401"):
            names["push"]("2026-11-28")
        service.begin([Fault.status(404, user="user-1")])
        names["push"]("2026-11-28")
        names["push"]("2026-11-28")
        assert service.requests == 1
