"""Spark loses workers, executors and drivers in the middle, and starts tasks twice: no user is doubled or lost."""

import os
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from support.engine_driver import CALM, MESSAGE
from support.engine_lab import ROOT, installed, kill, logged, processes, spark_session
from support.kill_judge import verdict

from pushsdk import ConfigurationError, Outcome
from pushsdk.emulator import Fault
from pushsdk.spark import DirectoryClaims, broadcast, read_report
from pushsdk.spark import _run as inner

installed("spark")

USERS = 20_000
# So long that some requests are in flight at every kill.
SLOW = Fault.delay(0.2, name="slow")
ROUGH = [Fault.reset_after(every=23, name="lost"), Fault.status(429, retry_after=0, every=17, name="throttled"), SLOW]


def audience(spark, users=USERS):
    return spark.range(users).selectExpr("concat('user-', id) AS user_id", "id AS number")


def judge(report, service, *, unknown, least=1, users=USERS):
    """No user is doubled or lost, and few are unknown."""
    pushed = service.users()
    outcomes = {row.user_id: row.outcome.name for row in report.rows()}
    assert len(outcomes) == users == report.planned
    totals = verdict(((outcome, pushed.get(user, 0), 0) for user, outcome in outcomes.items()), doubt=unknown)
    assert pushed.keys() <= outcomes.keys()
    assert totals == Counter({"ACCEPTED": report.accepted, "UNKNOWN": report.unknown})
    assert report.unknown >= least


def meanwhile(work, service, happens):
    """Have something happen in the middle of the work."""
    with ThreadPoolExecutor(1) as thread:
        working = thread.submit(work)
        service.until(100)
        happens()
        return working.result()


def python_workers():
    """Not the daemon that they are forks of."""
    pids = processes("pyspark.daemon")
    return [pid for pid in pids if int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]) in pids]


def kill_an_executor(notes):
    """One that sends, with its Python, as the end of its machine would: that would still end what it has on its way."""
    sending = {int(pid) for pid in notes.read_text().split()}
    pids = {executor: processes("pyspark.daemon", executor) for executor in processes("CoarseGrainedExecutorBackend")}
    kill(next([executor, *workers] for executor, workers in pids.items() if sending & set(workers)))


@pytest.mark.parametrize("connect", [False, True])
def test_the_python_of_the_executors_is_killed(service, tmp_path, connect):
    service.begin(ROUGH)
    with spark_session("local[2,4]", tmp_path, connect=connect) as spark:
        work = partial(broadcast, audience(spark), MESSAGE, tmp_path / "run", **CALM)
        report = meanwhile(work, service, lambda: kill(python_workers()))
        judge(report, service, unknown=USERS // 4)


def test_a_driver_is_killed_and_another_resumes_the_run_with_other_tasks(service, tmp_path):
    service.begin([SLOW])
    run = tmp_path / "run"
    command = [sys.executable, "-m", "support.engine_driver", str(USERS), str(run)]
    with subprocess.Popen(command, cwd=ROOT) as driver:
        service.until(100)
        # Its Python workers live on for a moment, and go on sending.
        kill([driver.pid, *processes("org.apache.spark.deploy.SparkSubmit", driver.pid)])
    left = read_report(run)
    accepted = {row.user_id for row in left.rows(Outcome.ACCEPTED)}
    assert left.planned == USERS
    assert not left.in_use
    assert left.accepted + left.unknown + left.not_sent == USERS
    assert accepted <= service.users().keys()
    assert min(len(accepted), left.not_sent) > 0
    with spark_session("local[2]", tmp_path) as spark:
        never = spark.range(1).selectExpr("raise_error('evaluated again') AS user_id")
        report = broadcast(never, MESSAGE, run, tasks=5, **CALM)
        assert report.tasks == 5
        judge(report, service, unknown=8 * 50 * 2)


def test_a_client_is_killed_and_another_resumes_the_run_while_the_server_goes_on(service, tmp_path):
    service.begin([SLOW])
    run = tmp_path / "run"
    command = [sys.executable, "-m", "support.engine_driver", str(USERS), str(run)]
    with spark_session("local[4]", tmp_path, connect=True) as spark:
        with subprocess.Popen(command, cwd=ROOT) as client:
            service.until(100)
            kill([client.pid])
        report = broadcast(audience(spark), MESSAGE, run, tasks=2, **CALM)
        # Until the first job notices that it is superseded, each leaves to the other what that has claimed.
        judge(report, service, least=0, unknown=2 * 64 * 50)


@pytest.mark.parametrize("connect", [False, True])
def test_an_executor_is_killed(service, tmp_path, connect):
    # To find the processes of an executor takes a while: it must not have sent all it has by then.
    service.begin([Fault.delay(0.3)])
    notes = tmp_path / "notes"

    def happens():
        kill_an_executor(notes)
        # The other one ends before Spark starts its task again too, for the data that was lost: while both copies of a
        # task send, each reports as unknown what the other has on its way. So the service answers at once.
        service.fail([])

    settings = {"spark.executorEnv.PYTHONPATH": _path()}
    with spark_session("local-cluster[2,1,1024]", tmp_path, settings, connect=connect) as spark:
        claims = partial(_noted, notes, tmp_path / "claims")
        work = partial(broadcast, audience(spark), MESSAGE, tmp_path / "run", tasks=2, claims=claims, **CALM)
        report = meanwhile(work, service, happens)
        judge(report, service, unknown=4 * 50)


# -- a cluster of two hosts -----------------------------------------------------------------------------------------


def _path():
    return os.environ["PYTHONPATH"]


@contextmanager
def cluster(folder):
    """A standalone master and two workers, on addresses of their own: Spark takes them for two hosts."""
    import pyspark

    home = Path(pyspark.__file__).parent
    start = [str(home / "bin" / "spark-class"), "org.apache.spark.deploy."]
    settings = {**os.environ, "SPARK_HOME": str(home), "SPARK_DAEMON_MEMORY": "256m", "SPARK_WORKER_DIR": str(folder)}
    master = "spark://127.0.0.1:0"
    running = []

    def run(kind, host, *arguments):
        log = folder / f"{kind}-{host}"
        command = [start[0], f"{start[1]}{kind}", "--host", host, "--webui-port", "0", *arguments]
        with log.open("wb") as file:
            running.append(
                subprocess.Popen(command, env={**settings, "SPARK_LOCAL_IP": host}, stdout=file, stderr=file)
            )
        return log

    try:
        log = run("master.Master", "127.0.0.1", "--port", "0")
        master = logged(log, "Starting Spark master at ", running[0]).strip()
        for host in ("127.0.0.1", "127.0.0.2"):
            run("worker.Worker", host, "--cores", "1", "--memory", "1g", "--work-dir", str(folder / host), master)
        yield master
    finally:
        for process in running:
            process.terminate()
        for process in running:
            process.wait(60)


def _noted(notes, claims):
    """Each use of the claims notes its process: there is one in every attempt of a task."""
    with notes.open("a") as file:
        file.write(f"{os.getpid()} ")
    return DirectoryClaims(claims)


def _until_speculated(service, notes):
    """Once by the driver, once by each of four tasks, and then once more."""
    while len(notes.read_text().split()) <= 1 + 4:
        service.until(service.requests + 1)
    service.fail([SLOW])


def test_speculation_is_an_error_and_doubles_no_user_if_forced(service, tmp_path):
    # One task can't end before Spark has started it a second time.
    service.begin([Fault.status(429, retry_after=0, user="user-77", name="straggler"), SLOW])
    settings = {
        "spark.executorEnv.PYTHONPATH": _path(),
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.multiplier": "1.1",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.minTaskRuntime": "100ms",
    }
    notes = tmp_path / "notes"
    with cluster(tmp_path) as master, spark_session(master, tmp_path, settings) as spark:
        work = partial(broadcast, audience(spark), MESSAGE, tmp_path / "run", tasks=4, **CALM)
        with pytest.raises(ConfigurationError, match=r"Set spark\.speculation=false for this job"):
            work()
        assert service.requests == 0
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(inner.preflight, "check_spark", lambda *_: None)
            work = partial(work, claims=partial(_noted, notes, tmp_path / "claims"))
            report = meanwhile(work, service, lambda: _until_speculated(service, notes))
        assert report.accepted + report.unknown == USERS
        # Two copies of a task leave to each other what the other has claimed: of how many users is their luck, but all
        # are pushed, except for what a copy had on its way when Spark ended it.
        judge(report, service, least=0, unknown=USERS)
        assert USERS - len(service.users()) <= 16 * 50
