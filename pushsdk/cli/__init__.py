"""The way in to the command line: nothing is imported before it is needed, and a missing extra is said plainly."""

from __future__ import annotations

import sys

__all__ = ["main"]

CANNOT_RUN = 4  # the exit code of what is wrong outside the command line itself: an extra, a file, a port
_EXTRA = frozenset({"cyclopts", "rich"})


def main() -> int:
    """Run the command line of this process and return its exit code; a usage error exits with 2."""
    try:
        from pushsdk.cli.app import app
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _EXTRA:
            raise
        sys.stderr.write(f"The command line needs {error.name}: pip install 'pushsdk[cli]'\n")
        return CANNOT_RUN
    code: int = app(sys.argv[1:], result_action="return_int_as_exit_code_else_zero")
    return code
