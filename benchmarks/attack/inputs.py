"""Hostile files for every parser: how an input is laid out, judged, kept and repeated."""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import shutil
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from queue import Empty, Queue

from benchwright.curation.rng import rng

from . import judged, mutations
from .isolated import FAILURES, Case, Verdict, Worker
from .parser import Parser
from .parsers import all_parsers

QUICK, LONG = 1, 150
"""Changed files of a parser of share 1; the hand-made ones come on top."""

SLOW = (
    "bomb",
    "never ends",
    "recursive view",
    "counting view",
    "30 million",
    "30 MB",
    "GB",
    "well packed",
    "view of gigabytes",
    "20,000 times",
)
"""Names of hand-made files that the short form leaves to the long one."""


VALID = "as it should be"
"""The first input of every parser: a file that has to be read."""


def warm() -> None:
    """Import what the parsers need, so that it counts for no input."""
    import benchwright.pipelines.api  # noqa: F401
    import colour  # noqa: F401  # it makes a folder for its settings at home

    logging.getLogger("benchwright").setLevel(logging.ERROR)
    all_parsers()


@functools.cache
def specials_of(name: str) -> tuple[str, ...]:
    """Names of the hand-made files of a parser."""
    return (VALID, *all_parsers()[name].hostile)


def label_of(case: Case) -> str:
    """What an input is."""
    names = specials_of(case.parser)
    return names[case.number] if case.number < len(names) else f"changed file {case.number - len(names)}"


def lay_out(case: Case, folder: Path) -> tuple[Parser, str]:
    """Write the folder of an input."""
    parser = all_parsers()[case.parser]
    for name, data in parser.valid.items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
    label = label_of(case)
    if label == VALID:
        return parser, label
    if case.number < len(specials_of(case.parser)):
        parser.hostile[label](folder)
    else:
        draw = rng(case.seed, "attack", f"{case.parser}/{label}")
        data = parser.valid[parser.attacked]
        others = [data, *parser.spliced]
        begun = others[int(draw.integers(len(others)))]
        (folder / parser.attacked).write_bytes(mutations.changed(begun, others, draw, text=parser.text, packed=parser.packed))
    return parser, label


def judge(parser: Parser, folder: Path, out: Path) -> Verdict:
    """Have a folder read as a run would, and say what came of it."""
    from benchwright.pipelines.cli import exits as border

    try:
        told = parser.read(folder, out)
    except Exception as error:
        line = border.error_line(error)
        trace = "".join(traceback.format_exception(error))[-4000:]
        if judged.is_leak(error):
            return Verdict("traceback", line=f"{type(judged.root_of(error)).__name__}: {line}", trace=trace)
        there = (folder / parser.attacked).is_file()  # who took it away knows which it was
        if parser.forbidden:
            return Verdict("refused", line=line, trace=trace)
        return Verdict("unclear" if there and judged.is_unclear(line, folder, out) else "refused", line=line, trace=trace)
    if parser.forbidden:
        return Verdict("outside", line="it was read, and has to be refused")
    data = None
    with contextlib.suppress(OSError):
        data = (folder / parser.attacked).read_bytes()
    if lost := judged.silent_loss(parser, told, data):
        return Verdict("loss", line=lost)
    if odd := judged.unrepeatable(told.details, folder):
        return Verdict("unrepeatable", line=odd)
    return Verdict("done", line=f"{told.rows} rows, {dict(told.rejects)}")


def cases(seed: int, *, long: bool, only: Sequence[str] = (), each: int | None = None) -> list[Case]:
    """The inputs of a campaign; ``each`` says how many changed files a parser of share 1 gets."""
    found: list[Case] = []
    for name, parser in all_parsers().items():
        if only and not any(word.lower() in name.lower() for word in only):
            continue
        names = specials_of(name)
        made = [n for n, told in enumerate(names) if long or not any(word in told for word in SLOW)]
        if not long:  # one of them each time, another with another seed
            kept = rng(seed, "attack", f"{name}/chosen").permutation(len(made) - 1)[:1].tolist()
            made = [0, *(made[1 + place] for place in kept)]
        count = max(1, round((each or (LONG if long else QUICK)) * parser.share))
        found += [Case(name, number, seed) for number in (*made, *range(len(names), len(names) + count))]
    return found


def attack(
    todo: Sequence[Case], scratch: Path, keep: Path, *, workers: int = 2, tell: Callable[[str], None] = print
) -> dict[str, Counter[str]]:
    """Judge the inputs side by side.

    Args:
        todo: the inputs.
        scratch: folder for the processes.
        keep: where failing inputs are kept, a folder each.
        workers: processes.
        tell: told of every failure.

    Returns:
        Of every parser how many inputs had which state; ``inputs`` counts all.
    """
    waiting: Queue[Case] = Queue()
    for case in todo:
        waiting.put(case)
    found: dict[str, Counter[str]] = {case.parser: Counter() for case in todo}
    lock = threading.Lock()
    broken: list[str] = []

    def work() -> None:
        worker = Worker(scratch)
        with contextlib.suppress(Empty):
            while not broken:
                case = waiting.get_nowait()
                try:
                    verdict = worker.judge(case)
                except Exception as error:  # of the attack itself: it ends, and says so
                    broken.append(f"{case}: {error!r}")
                    break
                with lock:
                    found[case.parser].update({"inputs": 1, verdict.state: 1, "ms": round(1000 * verdict.seconds)})
                    if verdict.state in FAILURES:
                        place = kept(case, verdict, keep)
                        tell(f"{verdict.state}: {case.parser}, {verdict.label}: {verdict.line[:300]}  [{place}]")
        worker.close()

    begun = time.monotonic()
    threads = [threading.Thread(target=work) for _ in range(workers)]
    for thread in threads:
        thread.daemon = True  # Ctrl-C ends the attack, and not the next input
        thread.start()
    for thread in threads:
        thread.join()
    if broken:
        raise RuntimeError(f"the attack itself broke at {broken[0]}")
    tell(f"{len(todo)} inputs in {time.monotonic() - begun:.0f} s")
    return found


def kept(case: Case, verdict: Verdict, keep: Path) -> Path:
    """Keep a failing input: its folder, and what came of it."""
    name = "".join(letter if letter.isalnum() else "-" for letter in f"{case.parser} {verdict.label}")[:100]
    place = keep / verdict.state / f"{name}-seed{case.seed}"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    lay_out(case, place / "in")
    facts = {"parser": case.parser, "number": case.number, "seed": case.seed, **vars(verdict)}
    (place / "case.json").write_text(json.dumps(facts, indent=1) + "\n")
    return place


def again(place: Path, scratch: Path) -> Verdict:
    """Judge a kept input once more."""
    facts: Mapping[str, object] = json.loads((place / "case.json").read_text())
    worker = Worker(scratch)
    try:
        return worker.judge(Case(str(facts["parser"]), int(str(facts["number"])), int(str(facts["seed"]))))
    finally:
        worker.close()
