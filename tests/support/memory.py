"""How much memory this process has had at most."""

from __future__ import annotations

import resource
from pathlib import Path

__all__ = ["peak"]


def peak() -> int:
    """The peak resident set in KiB.

    From /proc where there is one: ``ru_maxrss`` of a child begins with what its parent had when it was started.
    """
    status = Path("/proc/self/status")
    if status.exists():
        return int(status.read_text().partition("VmHWM:")[2].split()[0])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
