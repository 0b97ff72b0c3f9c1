"""The command line."""

import os
import sys


def start() -> None:
    """Entry point. Ctrl-C while modules are imported, or while the process ends, is a line like any other."""
    for name, mode in ("stdin", "r"), ("stdout", "w"), ("stderr", "w"):
        if getattr(sys, name) is None:  # closed by the caller: the next file opened would take its number
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115
    try:
        from .main import main

        main()
    except KeyboardInterrupt:
        print("benchwright: interrupted", file=sys.stderr, flush=True)
        os._exit(130)
