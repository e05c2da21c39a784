"""Text that errors and commands share."""

from __future__ import annotations


def count(number: int, noun: str = "user") -> str:
    """Return the number with its noun: ``1 user``, ``2,000 users`` or ``2 pushes``."""
    return f"{number:,} {noun}{'' if number == 1 else 'es' if noun.endswith('sh') else 's'}"
