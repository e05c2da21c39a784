"""The retry budget of one client: what keeps an outage from being answered with more load."""

from __future__ import annotations

__all__ = ["RetryBudget"]

# AWS's shape (botocore, standard mode): in an outage the load stays at 1.0x, at 10 % failures nothing is lost.
CAPACITY = 500
COST = 5
REFUND = 1


class RetryBudget:
    """A bucket of tokens: a retry costs 5, a first-try success gives 1 back, 500 is full."""

    __slots__ = ("tokens",)

    def __init__(self) -> None:
        #: Tokens left, 0 to 500. Spent and given back by the sender.
        self.tokens = CAPACITY

    def spend(self) -> bool:
        """Pay for one retry; False where there is too little left, and then nothing is taken."""
        if self.tokens < COST:
            return False
        self.tokens -= COST
        return True

    def refund(self) -> None:
        """A request was accepted on its first try."""
        if self.tokens < CAPACITY:
            self.tokens += REFUND
