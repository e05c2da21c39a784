"""A fork waits until no thread of ours is inside SQLite, and none goes in meanwhile.

A child has the thread that forked, and no other: a lock that another one held, as SQLite's allocator has one for the
whole process, is never given back there, and the next use of SQLite, by whomever, hangs. Nothing in here is a lock in
its turn: a signal handler may fork between any two steps.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from threading import get_ident
from time import monotonic, sleep
from typing import ParamSpec, TypeVar

__all__ = ["no_fork", "unforked"]

P = ParamSpec("P")
T = TypeVar("T")

# Seconds that a fork waits at most, and that nobody goes in for it. Then things go on as if this were not here.
PATIENCE = 5.0
# Between two looks: about as long as a commit takes, or a fork.
STEP = 0.0005

# Threads that are inside, and since when.
_inside: dict[int, float] = {}
# Threads that fork, and until when nobody goes in for that.
_forking: dict[int, float] = {}


@contextmanager
def no_fork() -> Iterator[None]:
    """Not to be forked while this thread is within: for a transaction of SQLite, and nothing that waits for others.

    Any number of threads may be within at the same time, and each of them more than once. A fork by one of them does
    not wait for itself; and none waits for who has been within for more than five seconds, as where a disk hangs.
    """
    me = get_ident()
    if me in _inside:
        yield
        return
    try:
        _enter(me)
        yield
    finally:
        _inside.pop(me, None)


def unforked(work: Callable[P, T]) -> Callable[P, T]:
    """The same around each call of a function, at a quarter of the cost."""

    @wraps(work)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        me = get_ident()
        if me in _inside:
            return work(*args, **kwargs)
        try:
            _enter(me)
            return work(*args, **kwargs)
        finally:
            _inside.pop(me, None)

    return call


def _enter(me: int) -> None:
    # First this, then the look: of a fork and us at least one sees the other.
    _inside[me] = monotonic()
    if _forking:
        _let_fork(me)


def _let_fork(me: int) -> None:
    """Stay out while others fork; not for ever, as the fork may wait for a lock that is held where this waits."""
    until = monotonic() + PATIENCE
    while _is_forked(me) and monotonic() < until:
        _inside.pop(me, None)
        sleep(STEP)
        _inside[me] = monotonic()


def _is_forked(me: int) -> bool:
    now = monotonic()
    return any(thread != me and until > now for thread, until in _forking.copy().items())


def _is_used() -> bool:
    """Whether anybody is inside whom a fork should wait for. Who forks is in its own code, whatever called that."""
    now = monotonic()
    return any(now - since < PATIENCE and thread not in _forking for thread, since in _inside.copy().items())


def _before() -> None:
    me, until = get_ident(), monotonic() + PATIENCE
    while True:
        # Each time: a signal handler that forked during the sleep has ended it.
        _forking[me] = until
        if not _is_used() or monotonic() >= until:
            return
        sleep(STEP)


def _in_parent() -> None:
    _forking.pop(get_ident(), None)


def _in_child() -> None:
    """Of those who were inside only this thread is left, where a callback of SQLite has forked."""
    _forking.clear()
    for thread in _inside.keys() - {get_ident()}:
        del _inside[thread]


if hasattr(os, "register_at_fork"):  # pragma: no branch - absent on Windows
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
