"""Flip single bits of everything that a finished run wrote: ``verify`` has to name each file."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from benchwright.curation.rng import rng

from . import kills

NOT_RECORDED = {".lock", ".witness", ".fingerprints.json"}
"""An empty file, and what only spares the reading of sources that did not change: where it is damaged they are read again."""

FAILURES = ("unnoticed", "unnamed", "traceback")


def attack(seed: int, flips: int, scratch: Path, *, long: bool, tell: Callable[[str], None]) -> dict[str, Counter[str]]:
    """Flip bits under the folders of finished runs, trained and reported.

    Files are drawn evenly over the parts of a run (stages, dataset, results, votes, report, records), then evenly within.
    """
    found: dict[str, Counter[str]] = {}
    todo = [command for command in kills.commands(scratch, long=long) if "own" not in command.name]
    for command in todo:
        out = kills.undisturbed(command, scratch).out
        found[f"flips: {command.name}"] = flipped(seed, -(-flips // len(todo)), out, command.name, tell)
    return found


def flipped(seed: int, flips: int, out: Path, name: str, tell: Callable[[str], None]) -> Counter[str]:
    from benchwright.pipelines import api
    from benchwright.pipelines.cli import exits as border

    counts: Counter[str] = Counter()
    if problems := api.verify(str(out)):
        raise RuntimeError(f"{name}: files do not match their records before anything is flipped: {problems[0]}")
    groups: dict[str, list[Path]] = {}
    for path in sorted(out.rglob("*")):
        if path.is_file() and path.name not in NOT_RECORDED and path.stat().st_size:
            groups.setdefault(path.relative_to(out).parts[0], []).append(path)
    draw = rng(seed, "flips", name)
    names = sorted(groups)
    for number in range(flips):
        files = groups[names[number % len(names)]]
        path = files[int(draw.integers(len(files)))]
        at, bit = int(draw.integers(path.stat().st_size)), int(draw.integers(8))
        _flip(path, at, bit)
        counts["inputs"] += 1
        try:
            told = [str(problem) for problem in api.verify(str(out))]
        except Exception as error:
            from . import judged

            told = [border.error_line(error)]
            if judged.is_leak(error):
                counts["traceback"] += 1
                tell(f"traceback: {name}: bit {bit} of byte {at} of {path.relative_to(out)}: {type(error).__name__}: {error}")
        finally:
            _flip(path, at, bit)
        place = f"{name}: bit {bit} of byte {at} of {path.relative_to(out)}"
        if not told:
            counts["unnoticed"] += 1
            tell(f"unnoticed: {place}")
        elif not any(_names(line, path, out) for line in told):
            counts["unnamed"] += 1
            tell(f"unnamed: {place}: {told[0][:200]}")
        else:
            counts["done"] += 1
    # Once by the command line: it exits 1, and says so in lines.
    path = next(path for path in groups["stages"] if path.suffix == ".parquet")
    _flip(path, 10, 0)
    ended = subprocess.run(
        [sys.executable, "-P", "-m", "benchwright.pipelines.cli.main", "verify", str(out)], capture_output=True, text=True
    )
    _flip(path, 10, 0)
    if ended.returncode != 1 or "Traceback" in ended.stderr:
        counts["unnoticed"] += 1
        tell(f"unnoticed: {name}: the command ended with {ended.returncode}: {ended.stderr[-300:]}")
    return counts


def _names(line: str, path: Path, out: Path) -> bool:
    """Whether a line names the file; a file beside which another has the same bytes and inode may be named by that one."""
    if path.name in line:
        return True
    facts = path.stat()
    same = [each for each in out.rglob("*") if each.is_file() and each.stat().st_ino == facts.st_ino]
    # artifact.json says what a stage is: where it is damaged the stage is named.
    return any(each.name in line for each in same) or (
        path.name in ("artifact.json", "made.json", ".witness") and f"stage {path.parent.name}" in line
    )


def _flip(path: Path, at: int, bit: int) -> None:
    """In place: the same inode, the same time, so that only who reads it finds it."""
    import os

    facts = path.stat()
    with path.open("r+b") as stream:
        stream.seek(at)
        byte = stream.read(1)[0] ^ (1 << bit)
        stream.seek(at)
        stream.write(bytes([byte]))
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))
