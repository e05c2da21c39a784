"""Small run files and queries about them."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

import pushsdk
from pushsdk._core.user_states import UserState, UserStatus
from pushsdk._runs.plan import Chunk, Header
from pushsdk._runs.run_file.journal import Journal

PENDING, CLAIMED, ACCEPTED, REJECTED, UNKNOWN = UserState
BROADCAST = Header(
    kind="broadcast",
    base_url="https://push.example",
    message=b'{"title":{"en":"Spring"}}',
    source="list of 5",
    max_users=3,
    max_bytes=1000,
    created=1.5,
)


def chunk(*user_ids, message=None):
    """One request of the plan."""
    return Chunk(len(user_ids), msgspec.json.encode(user_ids)[1:-1], message)


def make_run(path, sizes=(3, 2), **options):
    """A sealed run of users u0, u1, ... in chunks of these sizes; open."""
    journal = Journal.open_or_create(path, BROADCAST, **options)
    users = [f"u{number}" for number in range(sum(sizes))]
    ends = [sum(sizes[: index + 1]) for index in range(len(sizes))]
    journal.add([chunk(*users[end - size : end]) for size, end in zip(sizes, ends, strict=True)])
    journal.seal(duplicates=4)
    return journal


def event(state, start, stop, status=None, reason="", *, resent=False):
    """A change to some users, by their positions in the plan."""
    return start, stop, UserStatus(state, status, reason, resent)


def some_events():
    """Events of every state, for a run with chunks of 3, 2 and 1 users, in three commits."""
    return [
        [event(CLAIMED, 0, 3), event(CLAIMED, 3, 5)],
        [
            event(ACCEPTED, 0, 2, 204),
            event(REJECTED, 2, 3, 400, "the service refused it"),
            event(PENDING, 3, 5, 429, "throttled"),
        ],
        [event(CLAIMED, 3, 4), event(UNKNOWN, 3, 4, 500, "no answer"), event(CLAIMED, 3, 4, resent=True)],
    ]


def record(journal, events):
    """Commit and apply the events."""
    journal.commit(events)
    journal.apply(events)


def seen(journal):
    """All that a run says to its writer and to a reader alike, as a value."""
    return (
        journal.header,
        journal.sealed,
        journal.chunks,
        journal.users,
        journal.notes,
        journal.outcomes(),
        journal.states.resent,
        [journal.load(number) for number in range(journal.chunks)],
        list(journal.states.runs()),
        [(row.user_id, row.outcome, row.status) for row in journal.rows()],
    )


def pieces(ranges):
    """As tuples, for comparing."""
    return [(piece.chunk, piece.start, piece.stop) for piece in ranges]


ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join(str(Path(file).parents[1]) for file in (pushsdk.__file__, __file__)),
}


def run(*arguments):
    return subprocess.run(
        [sys.executable, *map(str, arguments)], env=ENVIRONMENT, check=True, capture_output=True, text=True, timeout=120
    ).stdout


HALF_DONE = """
import resource, signal, sys
from pathlib import Path
from pushsdk._runs.run_file.journal import Journal
from support.run_files import ACCEPTED, BROADCAST, event, record

path, first = Path(sys.argv[1]), sys.argv[2:] == ["first"]
if not first:
    journal = Journal.open(path, write=True)
# The file may be changed and not grow: the system ends the process there, as it would with a kill.
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
resource.setrlimit(resource.RLIMIT_FSIZE, (4096 if first else path.stat().st_size, resource.RLIM_INFINITY))
if first:
    Journal.open_or_create(path, BROADCAST)
record(journal, [event(ACCEPTED, 3, 5, 204, "x" * 10_000)])
"""


def leave_half_done(path):
    """Make a run with a writer that was killed in the middle of a commit; return its earlier content."""
    journal = make_run(path, (3, 2, 1))
    record(journal, [event(CLAIMED, 0, 3)])
    state = seen(journal)
    journal.close()
    before = path.read_bytes()
    kill_within_a_commit(path)
    assert path.read_bytes() != before
    return state


def kill_within_a_commit(path, *which):
    """Open the existing run, or create a new run."""
    with pytest.raises(subprocess.CalledProcessError):
        run("-c", HALF_DONE, path, *which)
    # Its head says that it is longer than it is, and the journal beside it is needed.
    assert int.from_bytes(path.read_bytes()[28:32], "big") * 4096 > path.stat().st_size
    assert path.with_name(path.name + "-journal").read_bytes()[:1] != b"\0"
