"""The process of a segment's query, seen from outside: started, listened to, and killed when its time is over."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import IO, cast

from pushsdk.emulator.segment_frames import Done, Failed, Frame, Job, packed, read_frame
from pushsdk.emulator.tables import SegmentError

__all__ = ["Child"]

# Between two looks at the time and at ``stopping``, in seconds.
_LOOK = 0.05
# For a process that has said all to end, in seconds.
_END = 5.0
# The package is imported by its name, wherever it lies: the current directory is not looked into (-P).
_COMMAND = (sys.executable, "-P", "-c", "from pushsdk.emulator.segment_child import main; main()")


class Child:
    """One job in a process of its own, from entering to leaving."""

    def __init__(
        self,
        job: Job,
        *,
        timeout: float,
        stopping: Callable[[], bool] = lambda: False,
        folder: str | os.PathLike[str] | None = None,
    ) -> None:
        self._job = job
        self._timeout = timeout
        self._stopping = stopping
        self._folder = folder
        self._left = contextlib.ExitStack()
        # Set when it is killed: why.
        self._why: str | None = None
        # Set by frame: the last one was there.
        self._said_all = False
        # Until when the next frame has to be there. Set while one is waited for.
        self._deadline: float | None = None
        # Set by __enter__.
        self._process: subprocess.Popen[bytes]

    def __enter__(self) -> Child:
        with contextlib.ExitStack() as left:
            try:
                folder = left.enter_context(tempfile.TemporaryDirectory(prefix="pushsdk-", dir=self._folder))
                self._process = process = subprocess.Popen(  # noqa: S603 - our own command
                    _COMMAND,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    env=_environment(folder),
                    # An interrupt of the terminal is for us; we end it.
                    start_new_session=True,
                )
            except OSError as error:
                raise SegmentError(f"no process can be started for the query: {error.strerror}") from None
            left.callback(self._end)
            over = threading.Event()
            watcher = threading.Thread(target=self._watch, args=(over,), name="pushsdk-segment", daemon=True)
            watcher.start()
            left.callback(watcher.join)
            left.callback(over.set)
            given = cast(IO[bytes], process.stdin)
            with contextlib.suppress(OSError):  # it has died, which the missing frame tells
                given.write(packed(self._job))
                given.flush()
            self._left = left.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._left.close()

    def frame(self) -> Frame:
        """The next thing it says. Raises `SegmentError` for a failure, and where it is killed or dies."""
        self._deadline = time.monotonic() + self._timeout
        frame = read_frame(cast(IO[bytes], self._process.stdout))
        self._deadline = None
        self._said_all = isinstance(frame, Done | Failed)
        if isinstance(frame, Failed):
            raise SegmentError(frame.error)
        if frame is None:
            raise SegmentError(self._why or self._death())
        return frame

    def _watch(self, over: threading.Event) -> None:
        while not over.wait(_LOOK):
            deadline = self._deadline
            if self._stopping():
                self._why = "the query was stopped"
            elif deadline is not None and time.monotonic() > deadline:
                self._why = f"the query took over {self._timeout:g} s: make it cheaper, or give it more time"
            else:
                continue
            self._process.kill()
            return

    def _death(self) -> str:
        try:
            status = self._process.wait(_END)
        except subprocess.TimeoutExpired:  # it closed its output, and lives on
            status = 0
        told = f"by signal {-status}" if status < 0 else f"with status {status}"
        return f"the query brought down the process that ran it ({told}): make it simpler"

    def _end(self) -> None:
        process = self._process
        if self._said_all:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_END)
        process.kill()
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):  # the job, where it was never taken
                cast(IO[bytes], pipe).close()
        process.wait()


def _environment(folder: str) -> dict[str, str]:
    """Ours without this package's own settings, among which is the key; its temporary files go into ``folder``."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PUSHSDK_")}
    return kept | {"PYTHONPATH": os.pathsep.join(sys.path), **dict.fromkeys(("TMPDIR", "TEMP", "TMP"), folder)}
