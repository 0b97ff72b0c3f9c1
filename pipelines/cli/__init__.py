"""The command line."""

import os
import sys


def start() -> None:
    """Entry point. Ctrl-C while modules are imported, or while the process ends, is a line like any other."""
    try:
        from .main import main

        main()
    except KeyboardInterrupt:
        print("benchwright: interrupted", file=sys.stderr, flush=True)
        os._exit(130)
