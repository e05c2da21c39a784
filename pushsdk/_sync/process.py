"""What becomes of the open loops when the process forks or ends: no thread survives either of them."""

from __future__ import annotations

import atexit
import os
import time

from pushsdk._core.errors import ClientClosedError
from pushsdk._sync.worker import Worker

__all__ = ["AT_EXIT", "opened"]

#: Seconds for what is on its way when the interpreter ends, or the client was dropped without being closed.
AT_EXIT = 5.0
# And for closing the connections after that.
GRACE = 1.0

_open: set[Worker] = set()
_inherited: list[Worker] = []
_ending = False


def opened(worker: Worker) -> None:
    """Start its thread, and keep an eye on it. Raises ClientClosedError where the interpreter is ending."""
    if _ending:
        raise ClientClosedError("the interpreter is ending: nothing more is sent")
    for other in tuple(_open):
        if other.thread.ident is not None and not other.thread.is_alive():
            _open.discard(other)
    _open.add(worker)
    try:
        worker.thread.start()
    except BaseException as error:
        if worker.thread.ident is None:
            _open.discard(worker)
        if isinstance(error, RuntimeError) and "interpreter shutdown" in str(error):
            # Python 3.12, once the main thread has ended.
            raise ClientClosedError("the interpreter is ending: make the first call before") from None
        raise


def _at_exit() -> None:
    """Close what is open. Threads that are no daemons have ended by now; nobody waits for the others."""
    global _ending
    _ending = True
    workers = tuple(_open)
    for worker in workers:
        worker.end(AT_EXIT)
    until = time.monotonic() + AT_EXIT + GRACE
    for worker in workers:
        worker.thread.join(max(0.0, until - time.monotonic()))


def _in_child() -> None:
    """Let go of what a fork has copied: the calls on their way are the parent's, and so are their connections.

    The copies of its files are pointed to nowhere: closing and writing them would reach the parent's peer or loop, and
    keeping them would keep connections open that the parent has closed. The rest is kept for good: collected, it would
    run the ends of calls that go on elsewhere.
    """
    global _ending
    _ending = False
    workers = tuple(_open)
    _open.clear()
    for worker in workers:
        _inherited.append(worker)
        _make_immortal(worker)
        _disconnect(worker)


def _disconnect(worker: Worker) -> None:
    selector = worker.selector
    if selector is None or not selector.get_map():  # the loop was just closing
        return
    nowhere = os.open(os.devnull, os.O_RDWR)
    own = getattr(selector, "fileno", None)
    for file in (*selector.get_map(), *([own()] if own is not None else [])):
        os.dup2(nowhere, file, inheritable=False)
    os.close(nowhere)


def _make_immortal(worker: Worker) -> None:
    """Also beyond the end of the child's interpreter, which would take every module and what it holds apart."""
    try:
        import ctypes

        ctypes.pythonapi.Py_IncRef(ctypes.py_object(worker))
    except (ImportError, AttributeError):  # pragma: no cover - not CPython
        pass


atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):  # pragma: no branch - absent on Windows
    os.register_at_fork(after_in_child=_in_child)
