"""The guide's programs for engines, run as their users run them, with a worker killed in the middle."""

import os
import subprocess
import sys

import duckdb

from pushsdk.emulator import Fault
from support.docs import MODULES
from support.engine_lab import kill
from support.programs import address_of

HANGS = 300


def recipe(name, folder, service, *, users, changed):
    """The program, started in a folder with an audience; ``changed`` is replaced in its modules."""
    for file in (name, "parts.py"):
        text = MODULES[file]
        for old, new in changed.items():
            text = text.replace(old, new)
        (folder / file).write_text(text)
    (folder / "run").mkdir()
    with duckdb.connect() as db:
        rows = f"SELECT 'user-' || i AS user_id, 'N' || i AS first_name FROM range({users}) t(i)"
        db.execute(f"COPY ({rows}) TO '{folder}/users.parquet' (FORMAT parquet)")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(folder), os.environ["PYTHONPATH"]]),
        "RUN_DIR": str(folder / "run"),
        **address_of(service),
        # Ray sends no usage statistics, and writes no token to the home.
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_AUTH_MODE": "disabled",
        # By default workers have the niceness 15, and hardly run beside a busy process.
        "RAY_worker_niceness": "0",
        "HOME": str(folder),
    }
    with (folder / "log").open("ab") as log:
        return subprocess.Popen([sys.executable, name], env=environment, cwd=folder, stdout=log, stderr=log)


def ran(program, folder, service):
    """Wait for the end of a program; kill the first worker that sends after some requests."""
    with program:
        try:
            service.until(100)
            # So a request of the victim is in flight, however long it takes until it is killed.
            service.fail([Fault.delay(5.0)])
            kill([int((folder / "run" / "sending").read_text().split()[0])])
            service.fail([])
            assert program.wait(HANGS) == 0, (folder / "log").read_text()[-3000:]
        finally:
            program.kill()


def outcomes_of(folder):
    """Return the outcome of every user; fail if a user is missing or repeated."""
    with duckdb.connect() as db:
        rows = db.execute(f"SELECT user_id, outcome FROM '{folder}/run/outcomes-*.parquet'").fetchall()
    assert len(dict(rows)) == len(rows)
    return dict(rows)
