"""Sending progress: each task writes its counts beside its outcomes, and the driver reads and adds them."""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from pushsdk._io.sender import guarded
from pushsdk._runs.progress import TICK, OnProgress, Pace


def counted(batches: Iterator[Any], outcomes: str, task: int) -> Iterator[Any]:
    """Yield a task's outcomes; write their counts twice a second and at the end."""
    users, due = Counter[str](), 0.0

    def write() -> None:
        # Spark and Arrow skip a file with such a name. Without it, only on_progress knows less.
        path = Path(outcomes, f"_counts-{task}")
        with suppress(OSError):
            path.with_suffix(".new").write_bytes(msgspec.json.encode(users))
            path.with_suffix(".new").replace(path)

    for batch in batches:
        yield batch
        users.update(map(str.lower, batch.column("outcome").to_pylist()))
        if time.monotonic() >= due:
            write()
            due = time.monotonic() + TICK
    write()


@contextmanager
def watched(on_progress: OnProgress, outcomes: Path, planned: int) -> Iterator[None]:
    """Call ``on_progress`` from a thread twice a second, and at the end, with all tasks' counts."""
    ended, pace = threading.Event(), Pace(time.monotonic(), planned)

    def report(outcomes: Path) -> None:
        users = Counter[str]()
        for path in outcomes.glob("_counts-*[0-9]"):
            users.update(msgspec.json.decode(path.read_bytes(), type=dict[str, int]))
        settled = users.total() - users.pop("not_sent", 0)
        left = planned - settled
        on_progress(pace.progress(time.monotonic(), stage="sending", planned=planned, **users, not_sent=left))

    def watch() -> None:
        call, is_last = guarded("on_progress", report), False
        while not is_last:
            is_last = ended.wait(TICK)
            call(outcomes)

    with ThreadPoolExecutor(1, "pushsdk-progress") as thread:
        thread.submit(watch)
        try:
            yield
        finally:
            ended.set()
