"""The command line in a process of its own that has torch already: for tests that kill it, or want several at once."""

from __future__ import annotations

import multiprocessing
import os
from multiprocessing.process import BaseProcess
from pathlib import Path

from benchwright.curation import worker_processes

_COMMAND = """
import os, sys
os.setsid()
os.environ.clear()
os.environ.update(environment)
for number, name in enumerate((os.devnull, out, err)):
    os.dup2(os.open(name, os.O_RDWR | os.O_CREAT), number)
from benchwright.pipelines.cli import main
sys.exit(main.call(arguments))
"""


def forked(*arguments: object, out: str | Path = os.devnull, err: str | Path = os.devnull) -> BaseProcess:
    """Begin ``benchwright ARGUMENTS`` as leader of a group of processes.

    It is forked from the server that forks worker processes of runs. Begun by Python, it would import torch for two seconds.

    Args:
        arguments: the words of the command.
        out, err: files to which standard output and standard error go.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*worker_processes._LARGE])  # where no server is there yet
    known = {"arguments": [str(each) for each in arguments], "environment": dict(os.environ), "out": str(out), "err": str(err)}
    process = context.Process(target=exec, args=(_COMMAND, known))
    process.start()
    return process
