"""The most users in a request that a service takes, as learned from its 413s."""

import sys


class LearnedLimit:
    """Half as many users as the smallest request had that was too large."""

    def __init__(self) -> None:
        #: No limit until a 413. Only falls; set by ``learn``.
        self.users = sys.maxsize

    def learn(self, users: int) -> None:
        """Learn from a request with so many users that was too large."""
        self.users = min(self.users, (users + 1) // 2)
