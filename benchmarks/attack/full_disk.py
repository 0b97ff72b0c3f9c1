"""Runs on a disk that is too small: one line that names the place, and the same bytes when there is room again.

A small tmpfs is mounted for it, which takes root's rights; without them the files of a run are limited in size instead.
"""

from __future__ import annotations

import contextlib
import resource
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from . import kills

FAILURES = ("traceback", "unclear", "not ended", "other bytes")


def attack(scratch: Path, *, long: bool, tell: Callable[[str], None]) -> dict[str, Counter[str]]:
    """Run every pipeline where a share of the room that it needs is there, and then where there is enough."""
    found: dict[str, Counter[str]] = {}
    for command in kills.commands(scratch, long=long):
        whole = kills.undisturbed(command, scratch)
        size = sum(path.stat().st_blocks * 512 for path in whole.out.rglob("*") if path.is_file())
        counts = found[f"full disk: {command.name}"] = Counter()
        for share in (0.1, 0.3, 0.6, 0.9) if long else (0.4,):
            one(command, int(size * share), scratch / "small", whole.digests, counts, tell)
    return found


def one(
    command: kills.Command, size: int, place: Path, wanted: dict[str, str], counts: Counter[str], tell: Callable[[str], None]
) -> None:
    counts["inputs"] += 1
    with _small(place, size) as (grow, limited):
        code, told = _run(command, place / "out", limited)
        lines = [line for line in told.splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith("benchwright: ") and not line.startswith("benchwright: warning")]
        if "Traceback" in told:
            counts["traceback"] += 1
            tell(f"traceback: {command.name} with {size:,} bytes: {told[-1500:]}")
        elif code == 0:
            counts["done"] += 1
            tell(f"{command.name} with {size:,} bytes: there was room enough")
            return
        elif code != 1:
            counts["not ended"] += 1
            tell(f"not ended: {command.name} with {size:,} bytes: exit code {code}: {told[-300:]}")
        elif len(errors) != 1 or len(lines) != 1 or str(place) not in errors[0]:
            counts["unclear"] += 1
            tell(f"unclear: {command.name} with {size:,} bytes: {told[-600:]}")
        grow()
        code, told = _run(command, place / "out", 0)
        different = differing = (
            kills.differing(wanted, kills.digests(place / "out")) if code == 0 else [f"exit code {code}: {told[-300:]}"]
        )
        if different:
            counts["other bytes"] += 1
            tell(f"other bytes: {command.name} after {size:,} bytes: {', '.join(differing[:5])}")
        else:
            counts["done"] += 1


@contextlib.contextmanager
def _small(place: Path, size: int):
    """A folder with so much room; gives what makes it larger, and the limit of a file's size where there is no such folder."""
    place.mkdir(parents=True, exist_ok=True)
    mounted = (
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)], capture_output=True).returncode == 0
    )
    try:
        if mounted:
            yield lambda: subprocess.run(["mount", "-o", "remount,size=1g", str(place)], check=True), 0
        else:
            yield lambda: None, size // 10
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(place)], check=False)
        shutil.rmtree(place, ignore_errors=True)


def _run(command: kills.Command, out: Path, limited: int) -> tuple[int, str]:
    def limit() -> None:
        if limited:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limited, limited))

    ended = subprocess.run(
        [sys.executable, "-P", "-m", "benchwright.pipelines.cli.main", *command.arguments, "--out", str(out), "--quiet"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=limit,
    )
    return ended.returncode, ended.stderr
