"""The peak memory of this process."""

import resource
from pathlib import Path

__all__ = ["peak"]


def peak() -> int:
    """The peak resident set in KiB.

    Read from /proc if it exists: ``ru_maxrss`` of a child starts at the value of its parent.
    """
    status = Path("/proc/self/status")
    if status.exists():
        return int(status.read_text().partition("VmHWM:")[2].split()[0])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
