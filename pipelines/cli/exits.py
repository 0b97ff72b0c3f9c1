"""Error handling of the command line: every error becomes one line on standard error, and an exit code.

0 done; 1 failed, rejects over budget, or not what the records say; 2 wrong use; 75 the scheduler of a cluster was lost, or does
not answer: repeat the command; 130 stopped by Ctrl-C.
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

REPEAT = 75
"""EX_TEMPFAIL of sysexits.h."""

LONGEST = 1500
"""Most characters of an error's line; a longer one is cut in the middle, since its end says what to do."""

_UsageError: type[Exception] = typer.BadParameter.__bases__[0]  # some versions of typer contain a copy of click


def guarded(call: Callable[[], Any], *, debug: Callable[[], bool]) -> int:
    """Call, and turn an exception into a line and an exit code. ``debug`` returns whether to print the traceback."""
    try:
        code = call()
        if code != STOPPED:  # newer versions of typer catch Ctrl-C themselves
            return code if isinstance(code, int) else 0
        return _stopped()
    except typer.Exit as done:
        return done.exit_code
    except _UsageError as error:
        return _usage(error)
    except (KeyboardInterrupt, typer.Abort):
        return _stopped()
    except BrokenPipeError:
        # The reader of our output has closed it. Python would complain when it flushes standard output at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:  # one line for users, the traceback on demand
        if debug():
            traceback.print_exc()
        if needs := lacking(error):
            say(needs)
            return 2
        say(error_line(error, debug=debug()))
        return _code(error)


def _stopped() -> int:
    say("interrupted. Finished parts are kept: repeat the command to resume.")
    return STOPPED


def leave(code: int) -> None:
    """End the process at once, without waiting for threads of libraries that may still be working.

    Everything that needs closing is closed by now; threads running during interpreter shutdown could abort the process.
    """
    if "multiprocessing.util" in sys.modules:
        import multiprocessing

        for child in multiprocessing.active_children():
            child.kill()
    atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage]  # cleanup of libraries, such as releasing semaphores
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(BrokenPipeError, ValueError):
            stream.flush()
    os._exit(code)


def say(line: str) -> None:
    """Print one line to standard error."""
    print(f"benchwright: {line}", file=sys.stderr, flush=True)


def warn_of_host(host: str, what: str) -> None:
    """Warn if a server listens on more than this machine."""
    if host not in ("127.0.0.1", "::1", "localhost"):
        whoever = "anyone who can reach this machine and has the link"
        say(f"warning: --host {host}: {whoever} {what}; the connection is not encrypted")


def warnings_as_lines() -> None:
    """Print warnings of stages and of training trackers in the format of the other lines."""
    logger = logging.getLogger("benchwright")
    logger.setLevel(logging.WARNING)
    if not logger.handlers:
        handler = _Lines()
        handler.setFormatter(logging.Formatter("benchwright: warning: %(message)s"))
        logger.addHandler(handler)


@contextlib.contextmanager
def libraries_silenced(*, debug: bool) -> Iterator[None]:
    """Suppress what C libraries such as libtiff and LibRaw print about damaged files; not if ``debug``.

    They write to file descriptor 2 from any thread, so it is redirected to the null device in the block, also for worker
    processes. Python's own standard error still works. Rejects report the same errors. The output is not filtered by a pipe: a
    library that fills a pipe while it holds the interpreter's lock would wait for a reader that waits for the lock.
    """
    own = sys.stderr
    try:
        python_too = own.fileno() == 2
        own.flush()
        saved = -1 if debug else os.dup(2)
    except (OSError, ValueError, AttributeError):  # no standard error to keep clean
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
        print(_shown(self.format(record)), file=sys.stderr, flush=True)  # looked up at each call: progress bars replace it


def error_line(error: Exception, *, debug: bool = False) -> str:
    """The line that reports an error: the message of errors that users can fix, otherwise also the type."""
    if isinstance(error, OSError) and error.strerror:
        place = f"{error.filename}: " if error.filename is not None else ""
        return _shown(f"{place}{error.strerror[0].lower()}{error.strerror[1:]}")
    message = _shown(" ".join(_text(error).split()))
    own = "" if type(error).__module__.startswith("benchwright.") else own_line(error)
    expected = isinstance(error, ValueError | RuntimeError | OSError) or (isinstance(error, KeyError) and not own)
    if (expected and message) or debug:
        return f"{message or type(error).__name__}{own}"
    return f"{type(error).__name__}: {message or 'no message'}{own or ' (`benchwright --debug ...` shows where)'}"


def _text(error: Exception) -> str:
    try:
        return str(error.args[0] if isinstance(error, KeyError) and error.args else error)
    except Exception as second:  # an error that quotes a value that cannot be printed, such as a number of 5,000 digits
        return f"{type(error).__name__}, which cannot be printed: {second}"


def _shown(line: str) -> str:
    """The line with unprintable characters escaped and its length limited, since it may quote untrusted files."""
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


def _code(error: Exception) -> int:
    # By name, so that an error of a broken installation can be reported without importing the broken package.
    name = type(error).__name__
    if name == "SchedulerGone":
        return REPEAT
    return 2 if isinstance(error, WrongUse) or name in ("PlanError", "UnknownName") else 1
