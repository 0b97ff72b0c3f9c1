"""The command line in a process of its own that has torch already: for tests that kill it, or want several at once."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Mapping
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import MappingProxyType

from benchwright.curation import worker_processes

_COMMAND = """
import os, sys
os.setsid()
os.environ.clear()
os.environ.update(environment)
for number, name in enumerate((os.devnull, out, err)):
    os.dup2(os.open(name, os.O_RDWR | os.O_CREAT), number)
from pkgutil import resolve_name
for name, value in set_to.items():
    place, _, attribute = name.rpartition(".")
    setattr(resolve_name(place), attribute, value)
from benchwright.pipelines.cli import main
sys.exit(main.call(arguments))
"""


def forked(
    *arguments: object,
    out: str | Path = os.devnull,
    err: str | Path = os.devnull,
    set_to: Mapping[str, object] = MappingProxyType({}),
) -> BaseProcess:
    """Begin ``benchwright ARGUMENTS`` as leader of a group of processes.

    It is forked from the server that forks worker processes of runs. Begun by Python, it would import torch for two seconds.

    Args:
        arguments: the words of the command.
        out, err: files to which standard output and standard error go.
        set_to: dotted names of what has other values there, as by monkeypatch.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*worker_processes._LARGE])  # where no server is there yet
    known: dict[str, object] = {"arguments": [str(each) for each in arguments], "environment": dict(os.environ)}
    known |= {"out": str(out), "err": str(err), "set_to": dict(set_to)}
    process = context.Process(target=exec, args=(_COMMAND, known))
    process.start()
    return process
