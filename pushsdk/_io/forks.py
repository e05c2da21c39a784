"""Forks: a child has copies of its parent's connections, open files and locks, and must leave them alone."""

import os
from collections.abc import Callable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from pushsdk._core.errors import ConfigurationError

T = TypeVar("T")

_actions: WeakKeyDictionary[Any, Callable[[Any], object]] = WeakKeyDictionary()


class ProcessGuard:
    """The process that an object was made in; no other may use the object."""

    def __init__(self) -> None:
        self._process = os.getpid()

    @property
    def is_inherited(self) -> bool:
        """Return True in a forked child."""
        return self._process != os.getpid()

    def check(self, what: str) -> None:
        """Raise ConfigurationError in a forked child; ``what`` names the action before the fork."""
        if self.is_inherited:
            raise ConfigurationError(f"{what} before a fork: make one in each process")


def in_child(owner: T, action: Callable[[T], object]) -> None:
    """Call ``action(owner)`` at each forked child's start, as long as the owner exists."""
    _actions[owner] = action


def _start_child() -> None:
    for owner, action in tuple(_actions.items()):
        action(owner)


if hasattr(os, "register_at_fork"):  # pragma: no branch - absent on Windows
    os.register_at_fork(after_in_child=_start_child)
