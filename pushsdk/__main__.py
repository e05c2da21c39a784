"""The entry point for the command ``pushsdk``, and for ``python -m pushsdk``."""

import os
import signal
import sys


def main() -> int:
    """Run the process's command line and return the exit code. Ctrl-C while modules load ends it silently."""
    if startup := signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # under nohup it stays ignored
        # Not by KeyboardInterrupt, which Python may print and drop during an import.
        signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    from pushsdk.cli import main

    return main(before_command=lambda: startup and signal.signal(signal.SIGINT, signal.default_int_handler))


if __name__ == "__main__":
    sys.exit(main())
