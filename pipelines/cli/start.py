"""Entry point of the command line. Nothing else of benchwright is imported before its handlers are in place."""

import contextlib
import os
import sys


def start() -> None:
    """Run the command line. Ctrl-C while modules are imported, or while the process ends, is a line like any other."""
    for name, mode in ("stdin", "r"), ("stdout", "w"), ("stderr", "w"):
        if getattr(sys, name) is None:  # closed by the caller: the next file opened would take its number
            setattr(sys, name, stream := open(os.devnull, mode))  # noqa: SIM115
            os.set_inheritable(stream.fileno(), True)
    try:
        from .main import main

        main()
    except KeyboardInterrupt:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
        print("benchwright: interrupted", file=sys.stderr, flush=True)
        os._exit(130)
