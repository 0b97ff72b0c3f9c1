"""Kill a running demo with SIGKILL at random moments, run it again, and compare every byte with an unbroken run.

Each round starts in an empty folder, is killed once at a moment drawn from the length of the unbroken run, and then goes on to
its end. Compared are all files of stages, votes, dataset and baselines. Left out are those that say when and in what time
something was made, and the report, which prints them: ``made.json``, ``.witness``, ``.fingerprints.json``, ``.lock``,
``report.html``.

    python benchmarks/kill_run.py --kills 20 --workers 1 2              # the demo; --photos 240 for a smaller album
    python benchmarks/kill_run.py --kills 20 --workers 1 2 --what tiny  # CLEAR's tiny configuration
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SKIPPED = {"made.json", ".witness", ".fingerprints.json", ".lock", "report.html"}


def digests(folder: Path) -> dict[str, str]:
    """SHA-256 of every file that must be the same."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in SKIPPED
    }


def command(what: str, photos: int, out: Path, scheduler: str, workers: int) -> list[str]:
    """The command line that is run, killed, and run again."""
    cli = [sys.executable, "-m", "benchwright.pipelines.cli.main"]
    common = ["--out", str(out), "--scheduler", scheduler, "--workers", str(workers), "--quiet"]
    return (
        [*cli, "demo", "--photos", str(photos), *common]
        if what == "demo"
        else [*cli, "run", "clear", "--config", "tiny", *common]
    )


def run(arguments: list[str], kill_after_s: float | None = None) -> bool:
    """Run to the end, or kill the whole process after a time. Returns whether it was killed."""
    process = subprocess.Popen(
        arguments,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
        env={**os.environ, "PYTHONSAFEPATH": "1"},
    )
    try:
        _, told = process.communicate(timeout=kill_after_s)
    except subprocess.TimeoutExpired:
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        return True
    if process.returncode != 0:
        raise SystemExit(f"the run failed with {process.returncode}: {told.decode()[-2000:]}")
    return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--what", choices=["demo", "tiny"], default="demo")
    parser.add_argument("--kills", type=int, default=20, help="rounds for each number of workers")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--scheduler", default="threads", choices=["threads", "processes"])
    parser.add_argument("--photos", type=int, default=960, help="size of the demo's album")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--quick", action="store_true", help="two rounds of tiny")
    options = parser.parse_args()
    if options.quick:
        options.what, options.kills = "tiny", 2
    moments = random.Random(options.seed)
    scratch = Path(tempfile.mkdtemp(prefix="kill-run-"))
    out = scratch / "out"
    broken = 0
    try:
        started = time.monotonic()
        run(command(options.what, options.photos, out, options.scheduler, 2))
        length = time.monotonic() - started
        wanted = digests(out)
        print(f"unbroken {options.what}: {length:.1f} s, {len(wanted)} files", flush=True)
        for workers in options.workers:
            for number in range(options.kills):
                shutil.rmtree(out)
                after = moments.uniform(0.02, 1.0) * length
                killed = run(command(options.what, options.photos, out, options.scheduler, workers), after)
                files = len(digests(out)) if out.exists() else 0
                run(command(options.what, options.photos, out, options.scheduler, workers))
                found = digests(out)
                different = sorted(name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name))
                broken += bool(different)
                state = f"killed after {after:5.1f} s with {files} files" if killed else f"ended before {after:.1f} s"
                verdict = "the same bytes" if not different else f"DIFFERENT: {', '.join(different[:5])}"
                print(f"{workers} workers, round {number + 1}: {state}, then {verdict}", flush=True)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    print(f"{broken} of {options.kills * len(options.workers)} rounds differ")
    raise SystemExit(1 if broken else 0)


if __name__ == "__main__":
    main()
