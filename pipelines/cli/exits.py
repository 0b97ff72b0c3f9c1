"""The command line's border: every error that crosses it becomes one line on standard error, and an exit code.

0 done; 1 failed, rejects over budget, or not what the records say; 2 wrong use; 130 stopped by Ctrl-C.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import typer

from ...curation.code_loading import own_line
from ...curation.extras import lacking
from ..errors import WrongUse

STOPPED = 130

LONGEST = 1500
"""Characters of an error's line; of a longer one the middle is left out, as its end says what to do."""

_UsageError: type[Exception] = typer.BadParameter.__bases__[0]  # typer carries its own copy of click, or not, by version


def guarded(call: Callable[[], Any], *, debug: Callable[[], bool]) -> int:
    """Call, and turn what it raises into a line and an exit code. ``debug`` tells whether the traceback is wanted."""
    try:
        code = call()
        if code != STOPPED:  # newer typers catch Ctrl-C themselves
            return code if isinstance(code, int) else 0
        return _stopped()
    except typer.Exit as done:
        return done.exit_code
    except _UsageError as error:
        return _usage(error)
    except (KeyboardInterrupt, typer.Abort):
        return _stopped()
    except BrokenPipeError:
        # Whoever read our output has enough. Python would complain when it flushes standard output at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:  # the border: one line for people, the traceback on demand
        if debug():
            traceback.print_exc()
        if needs := lacking(error):
            say(needs)
            return 2
        say(error_line(error, debug=debug()))
        return 2 if _is_wrong_use(error) else 1


def _stopped() -> int:
    say("interrupted. Finished parts are kept: repeat the command to resume.")
    return STOPPED


def leave(code: int) -> None:
    """End the process at once: threads of libraries may still be at work, and Ctrl-C need not wait for their part.

    What has to be closed was closed on the way here; threads that meet an interpreter which is being taken down can abort it.
    """
    if "multiprocessing.util" in sys.modules:
        import multiprocessing

        for child in multiprocessing.active_children():
            child.kill()
    atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage]  # what libraries want done at the end, such as giving semaphores back
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(BrokenPipeError, ValueError):
            stream.flush()
    os._exit(code)


def say(line: str) -> None:
    """One line to standard error."""
    print(f"benchwright: {line}", file=sys.stderr, flush=True)


def warn_of_host(host: str, what: str) -> None:
    """Warn where a server listens at more than this machine."""
    if host not in ("127.0.0.1", "::1", "localhost"):
        whoever = "anyone who can reach this machine and has the link"
        say(f"warning: --host {host}: {whoever} {what}; the connection is not encrypted")


def warnings_as_lines() -> None:
    """Let what the stages, and trackers of trainings, warn of be lines like the others."""
    logger = logging.getLogger("benchwright")
    logger.setLevel(logging.WARNING)
    if not logger.handlers:
        handler = _Lines()
        handler.setFormatter(logging.Formatter("benchwright: warning: %(message)s"))
        logger.addHandler(handler)


@contextlib.contextmanager
def libraries_silenced(*, debug: bool) -> Iterator[None]:
    """Keep what libraries of C print about damaged files, such as libtiff and LibRaw, from the terminal; not where ``debug``.

    They write to file descriptor 2, whatever thread they run in, so it leads nowhere in the block, for worker processes too.
    Python's own standard error goes on beside it. The rejects say what the libraries would. No pipe is filtered: a library that
    fills one while it holds the interpreter's lock would wait for a reader that waits for the lock.
    """
    own = sys.stderr
    try:
        python_too = own.fileno() == 2
        own.flush()
        saved = -1 if debug else os.dup(2)
    except (OSError, ValueError, AttributeError):  # there is no standard error to keep clean
        python_too, saved = False, -1
    if saved < 0:
        yield
        return
    with contextlib.ExitStack() as stack:
        stack.callback(os.close, saved)
        stack.callback(os.dup2, saved, 2)
        if python_too:
            kind: dict[str, Any] = {"encoding": own.encoding, "errors": own.errors, "closefd": False}
            beside = stack.enter_context(open(saved, "w", buffering=1, **kind))
            stack.enter_context(contextlib.redirect_stderr(beside))
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield


class _Lines(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        print(_shown(self.format(record)), file=sys.stderr, flush=True)  # looked up now: progress bars stand before it


def error_line(error: Exception, *, debug: bool = False) -> str:
    """What is reported of an error: of those that people can mend what it says, of others their type as well."""
    if isinstance(error, OSError) and error.strerror:
        place = f"{error.filename}: " if error.filename is not None else ""
        return _shown(f"{place}{error.strerror[0].lower()}{error.strerror[1:]}")
    told = _shown(" ".join(_text(error).split()))
    own = "" if type(error).__module__.startswith("benchwright.") else own_line(error)
    expected = isinstance(error, ValueError | RuntimeError | OSError) or (isinstance(error, KeyError) and not own)
    if (expected and told) or debug:
        return f"{told or type(error).__name__}{own}"
    return f"{type(error).__name__}: {told or 'no message'}{own or ' (`benchwright --debug ...` shows where)'}"


def _text(error: Exception) -> str:
    try:
        return str(error.args[0] if isinstance(error, KeyError) and error.args else error)
    except Exception as second:  # of an error that quotes what cannot be printed, such as a number of 5,000 digits
        return f"{type(error).__name__}, which cannot be printed: {second}"


def _shown(line: str) -> str:
    """The line as a terminal may show it: files of strangers are quoted in it, with whatever bytes they hold, and at length."""
    if not line.isprintable():
        line = "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in line)
    if len(line) <= LONGEST:
        return line
    return f"{line[: LONGEST * 2 // 3]} [... {len(line) - LONGEST:,} characters ...] {line[-LONGEST // 3 :]}"


def _usage(error: Any) -> int:
    text = " ".join(error.format_message().split())
    if type(error).__name__ == "NoArgsIsHelpError":  # its message is the help
        print(error.format_message(), file=sys.stderr)
        return 2
    context = getattr(error, "ctx", None)
    say(f"{text.rstrip('.')} (see `{context.command_path if context else 'benchwright'} --help`)")
    return 2


def _is_wrong_use(error: Exception) -> bool:
    # By name, so that an error of a broken installation can be told without importing what is broken.
    return isinstance(error, WrongUse) or type(error).__name__ in ("PlanError", "UnknownName")
