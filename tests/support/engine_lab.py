"""Engines for tests: the installed ones, a small Spark, and its processes to kill."""

import os
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = {"spark": "pyspark", "ray": "ray", "dask": "distributed"}


def installed(engine):
    """Skip the tests if the engine is missing, unless PUSHSDK_REQUIRE_ENGINES names it."""
    package = PACKAGES[engine]
    if find_spec(package) is None and engine not in os.environ.get("PUSHSDK_REQUIRE_ENGINES", "").split():
        pytest.skip(f"{package} is not installed (pip install -e '.[engines]')", allow_module_level=True)


def environment():
    """Return the environment in which processes of an engine find the package and the tests."""
    return {
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")]),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        # They live for seconds: the better compiler would not earn its time, and Spark's bytecode needs no proof.
        "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto "
        "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote",
    }


@contextmanager
def spark_session(master, folder, settings=None, *, connect=False):
    """Start a small Spark that writes to this folder only; with ``connect`` in a server, and connect to that."""
    from pyspark.sql import SparkSession

    options = {
        "spark.master": master,
        "spark.app.name": "tests",
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
        "spark.driver.memory": "512m",
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.shuffle.partitions": "4",
        # As by default: what the first session of a process sets, its JVM remembers.
        "spark.speculation": "false",
        "spark.eventLog.enabled": "false",
        **(settings or {}),
    }
    if connect:
        with connect_server(folder, options) as address, pytest.MonkeyPatch.context() as patch:
            # A session of Connect sets the second, which would hold for later sessions, too.
            patch.setenv("SPARK_REMOTE", address)
            patch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")
            session = SparkSession.builder.create()
            try:
                yield session
            finally:
                session.stop()
        return
    builder = SparkSession.builder
    for name, value in options.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    try:
        yield session
    finally:
        session.stop()


@contextmanager
def connect_server(folder, options):
    """Start a server of Spark Connect, and return its address."""
    import pyspark

    home = Path(pyspark.__file__).parent
    log = folder / "connect-server.log"
    command = [str(home / "bin" / "spark-submit"), "--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    listens = {"spark.connect.grpc.binding.address": "127.0.0.1", "spark.connect.grpc.binding.port": "0"}
    for name, value in {**options, **listens, "spark.log.level": "INFO"}.items():
        command += ["--conf", f"{name}={value}"]
    with log.open("wb") as file:
        server = subprocess.Popen(command, env={**os.environ, "SPARK_HOME": str(home)}, stdout=file, stderr=file)
    with server:
        try:
            yield "sc://" + logged(log, "Spark Connect server started at: ", server).strip()
        finally:
            server.terminate()
            with suppress(subprocess.TimeoutExpired):
                server.wait(30)
            server.kill()


def logged(log, words, process):
    """Return the text that follows the words in the log of a process, once the log has them."""
    command = ["tail", "-F", "-n", "+1", f"--pid={process.pid}", str(log)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as tail:
        for line in tail.stdout:
            if words in (text := line.decode()):
                tail.kill()
                return text.partition(words)[2]
    raise AssertionError(f"the process has ended: {log.read_text()[-3000:]}")


def processes(words, below_pid=None):
    """The processes below that one, or this one, with these words in their command line."""
    items = []
    below = {below_pid or os.getpid()}
    parents = dict(_parents())
    while below:
        below = {pid for pid, parent in parents.items() if parent in below}
        items += [pid for pid in below if words in _command(pid)]
    return items


def kill(pids):
    """Kill all processes at once, as a power loss would."""
    assert pids, "there is none to kill"
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _parents():
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                stat = Path("/proc", name, "stat").read_text()
            except OSError:
                continue
            yield int(name), int(stat.rpartition(")")[2].split()[1])


def _command(pid):
    try:
        return Path("/proc", str(pid), "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""
