"""`pushsdk broadcast` with one process and with two: users per second, and CPU time, against a sink.

Each turn is a whole command in processes of its own: it reads, plans, sends and writes its run files. The sink runs on
the same cores, so with as few cores as the processes the gain by the clock is bounded.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import contenders as c
from benchmarks.harness import Round, Series, Spread, ratio, user
from benchmarks.report import Goal, result
from benchmarks.sink import Sink, checksum, sink, unpin

ROUNDS, QUICK_ROUNDS = 5, 2
# Users of a turn.
PERSONAL, SHARED = 100_000, 1_000_000
TEXTS = {"personalized": "Hello {{ first_name | 'you' }}", "one message": "Hello"}


def message_file(folder: Path, text: str) -> Path:
    path = folder / "message.json"
    path.write_text(json.dumps({"title": c.TITLE, "body": {"en": text}, "iosEnabled": True, "androidEnabled": True}))
    return path


def csv_file(folder: Path, users: int) -> Path:
    path = folder / "users.csv"
    with path.open("w") as file:
        file.write("user_id,first_name\n")
        file.writelines(f"{user(number)},Ann{number}\n" for number in range(users))
    return path


def turn(server: Sink, folder: Path, message: Path, users: int, processes: int, *options: str) -> Round:
    """Run the command once; its CPU time includes that of its children."""
    environ = {**os.environ, "PUSHSDK_BASE_URL": server.base_url, "PUSHSDK_API_KEY": c.API_KEY}
    run = ["--processes", str(processes)] if processes > 1 else []
    command = [sys.executable, "-m", "pushsdk", "broadcast", str(folder / "users.csv"), "--message", str(message)]
    before, begun, spent = server.counts(), time.perf_counter(), _children()
    with tempfile.TemporaryDirectory(dir=folder) as name:
        command += ["--run", f"{name}/run", *run, *options]
        subprocess.run(command, env=environ, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wall, cpu = time.perf_counter() - begun, _children() - spent
    counts = server.counts().since(before)
    if (counts.users, counts.checksum) != (users, checksum(map(user, range(users)))):
        raise AssertionError(f"{counts} for {users} users")
    return Round(users, cpu, wall, counts.requests, counts.cpu / wall, counts.body_bytes)


def _children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


async def run(*, quick: bool) -> dict[str, Any]:
    unpin()  # two commands on one core would show no gain
    series, goals = [], []
    for name, users in (("personalized", PERSONAL), ("one message", SHARED)):
        count = users // 10 if quick else users
        options = ["--personalize", "custom-fields"] if name == "personalized" else []
        pair = [Series(f"{name}, {processes} process{'es' * (processes > 1)}", []) for processes in (1, 2)]
        with tempfile.TemporaryDirectory() as folder, sink() as server:
            csv_file(Path(folder), count)
            message = message_file(Path(folder), TEXTS[name])
            for _ in range(QUICK_ROUNDS if quick else ROUNDS):
                for processes, contender in enumerate(pair, 1):
                    contender.rounds.append(turn(server, Path(folder), message, count, processes, *options))
        one, two = pair
        cpu = ratio(one, two)  # of users per CPU second: the CPU time of two for that of one
        goals.append(Goal(f"{name}: CPU time of two processes, times that of one", cpu, at_most=1.2))
        gains = [first.wall / second.wall for first, second in zip(one.rounds, two.rounds, strict=True)]
        goals.append(Goal(f"{name}: speed by the clock, times that of one", Spread.of(gains)))
        series += pair
    return {**result("processes", "user", series, goals), "notes": [f"{os.cpu_count()} cores, shared with the sink"]}
