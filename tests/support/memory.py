"""The peak memory of a process."""

import os
import resource
import sys
from pathlib import Path

from support.programs import run_python


def peak():
    """The peak resident set in KiB.

    Read from /proc if it exists: ``ru_maxrss`` of a child starts at the value of its parent.
    """
    status = Path("/proc/self/status")
    if status.exists():
        return int(status.read_text().partition("VmHWM:")[2].split()[0])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def peak_of(program, *arguments):
    """Run a program that may call ``peak``, and return the two numbers that it prints."""
    code = f"import sys\nfrom support.memory import peak\n{program}"
    ended = run_python("-c", code, *arguments, PYTHONPATH=os.pathsep.join(sys.path))
    first, second = map(int, ended.out.split())
    return first, second
