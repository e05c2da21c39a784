"""A command that kills writers of runs: ``run_killer.py folder kills seed`` prints the last words of each writer.

Each writer is a fork: it plans a run, then commits numbered groups of events and reports each commit on a pipe, until
it is killed at a random moment.
"""

import json
import os
import random
import select
import signal
import sys
import time
from pathlib import Path

from pushsdk._core.user_states import UserState, UserStatus
from pushsdk._runs.plan import Chunk, Event, Header
from pushsdk._runs.run_file.journal import Journal
from support.run_files import record

__all__ = ["CHUNKS", "HEADER", "SIZE", "events_of", "plan"]

HEADER = Header(kind="broadcast", base_url="https://push.example", message=b"{}", max_users=100, max_bytes=10_000)
CHUNKS, SIZE = 50, 10
# Maximum commits of a writer, as its killer may be late and each commit is checked.
MOST = 1000


def events_of(number: int) -> list[Event]:
    """Return the events of commit ``number``, counted from 0; all commits differ."""
    draw = random.Random(number)
    items = []
    for _ in range(draw.choice((1, 3, 40))):
        chunk, start = draw.randrange(CHUNKS), draw.choice((0, 0, 0, 3))
        state, resent = draw.choice(tuple(UserState)), draw.random() < 0.2
        status = UserStatus(state, 200 + number % 300, f"commit {number}", resent)
        items.append((chunk * SIZE + start, (chunk + 1) * SIZE - start, status))
    return items


def plan(path: Path, *, durable: bool) -> Journal:
    """A run of CHUNKS chunks, in several transactions."""
    journal = Journal.open_or_create(path, HEADER, durable=durable)
    for number in range(CHUNKS):
        users = [f'"user-{number}-{place}"' for place in range(SIZE)]
        journal.add([Chunk(SIZE, ",".join(users).encode())])
    journal.seal(duplicates=0)
    return journal


def write(path: Path, pipe: int, *, durable: bool) -> None:
    journal = plan(path, durable=durable)
    for number in range(MOST):
        record(journal, events_of(number))
        os.write(pipe, b"n")
    signal.pause()


def kill_one(path: Path, draw: random.Random, *, sending: bool) -> int:
    """Return the number of commits that had returned before the kill."""
    out, into = os.pipe()
    durable = draw.random() < 0.5
    child = os.fork()
    if child == 0:
        os.close(out)
        try:
            write(path, into, durable=durable)
        finally:
            os._exit(1)
    os.close(into)
    if sending:
        select.select([out], [], [])
    time.sleep(draw.random() * 0.02)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), status
    output = b""
    while data := os.read(out, 65536):
        output += data
    os.close(out)
    return len(output)


if __name__ == "__main__":
    folder, kills, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    draw = random.Random(seed)
    # One in four is killed while it plans, or even before its first byte; the others once they have written something.
    said = [kill_one(folder / f"{number}.run", draw, sending=number % 4 != 0) for number in range(kills)]
    json.dump(said, sys.stdout)
