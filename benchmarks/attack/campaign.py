"""The command line of the attack, and its table."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from . import flips, full_disk, inputs, kills
from .isolated import FAILURES

PARTS = ("files", "kills", "flips", "disk")


def table(found: Mapping[str, Counter[str]], failures: Sequence[str]) -> list[str]:
    """Parsers by counts, and their sum."""
    columns = ["inputs", "done", "refused", *failures, *(["ms"] if any("ms" in counts for counts in found.values()) else [])]
    total: Counter[str] = Counter()
    for counts in found.values():
        total.update(counts)
    width = max(map(len, found), default=5) + 2
    rows = [*found.items(), (f"all {len(found)}", total)]
    lines = ["".join([" " * width, *(f"{name:>13}" for name in columns)])]
    lines += ["".join([f"{name:<{width}}", *(f"{counts[column]:>13,}" for column in columns)]) for name, counts in rows]
    return lines


def _tell(line: str) -> None:
    print(line, flush=True)


def _print(found: Mapping[str, Counter[str]], failures: Sequence[str]) -> int:
    print("\n".join(table(found, failures)), flush=True)
    return sum(counts[state] for counts in found.values() for state in failures)


def main() -> None:
    parser = argparse.ArgumentParser(prog="attack", description=__doc__)
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--quick", action="store_true", help="the short form (the default)")
    length.add_argument("--long", action="store_true", help="the long form")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--only", nargs="+", default=(), metavar="WORD", help="parsers whose name has one of these words")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--each", type=int, help="changed files of a parser, beside those made by hand; 150 in the long form")
    parser.add_argument("--kills", type=int, help="how many; 300 in the long form")
    parser.add_argument("--flips", type=int, help="how many; 600 in the long form")
    parser.add_argument("--keep", type=Path, default=Path("attack-found"), help="folder for failing inputs")
    parser.add_argument("--again", type=Path, metavar="FOLDER", help="judge one kept input once more")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what it began is cleared away
    scratch = Path(tempfile.mkdtemp(prefix="attack-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    begun, wrong = time.monotonic(), 0
    try:
        if given.again is not None:
            verdict = inputs.again(given.again, scratch)
            print(verdict.state, verdict.label, verdict.line, verdict.trace, sep="\n")
            raise SystemExit(verdict.state in FAILURES)
        if "files" in given.parts:
            todo = inputs.cases(given.seed, long=given.long, only=given.only, each=given.each)
            found = inputs.attack(todo, scratch, given.keep, workers=given.workers, tell=_tell)
            wrong += _print(found, FAILURES)
        if "kills" in given.parts:
            found = kills.attack(given.seed, given.kills or (300 if given.long else 4), scratch, long=given.long, tell=_tell)
            wrong += _print(found, kills.FAILURES)
        if "flips" in given.parts:
            found = flips.attack(given.seed, given.flips or (600 if given.long else 20), scratch, long=given.long, tell=_tell)
            wrong += _print(found, flips.FAILURES)
        if "disk" in given.parts:
            wrong += _print(full_disk.attack(scratch, long=given.long, tell=_tell), full_disk.FAILURES)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    print(f"{wrong} failures, {time.monotonic() - begun:.0f} s")
    raise SystemExit(1 if wrong else 0)
