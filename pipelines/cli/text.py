"""Output of commands for people: plans, runs and scores as lines of plain text."""

from __future__ import annotations

import math
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...eval.labels import differences, split_label

if TYPE_CHECKING:
    from ...curation.artifact import Artifact
    from ...curation.cost import CostEstimate
    from ...curation.encoders.speeds import EncoderSpeed
    from ...curation.flow import Stage


_KEPT = ", kept: made by earlier code"


def on_one_line(value: str) -> str:
    """Text from data, safe for a terminal: unprintable characters, such as escape sequences, are escaped."""
    return "".join(mark if mark.isprintable() else mark.encode("unicode_escape").decode() for mark in value)


def line_teller(*, quiet: bool) -> Callable[[str], None]:
    """A function that prints lines of progress to standard error; it prints nothing if ``quiet``."""

    def tell(line: str) -> None:
        if not quiet:  # in one write: print would write the newline separately, and lines of other threads could come between
            sys.stderr.write(f"{on_one_line(line)}\n")
            sys.stderr.flush()

    return tell


def print_lines(lines: Iterable[str]) -> None:
    """Print lines, each escaped by ``on_one_line``."""
    for line in lines:
        print(on_one_line(line))


def plan_lines(stages: Sequence[tuple[Stage, Artifact | None]], reasons: Mapping[str, str]) -> list[str]:
    """A line per stage: its name, kind and function, and whether a run would make it and why."""
    there = sum(artifact is not None for _, artifact in stages)
    lines = [f"{there} of {len(stages)} stages are up to date"]
    width = max(len(stage.name) for stage, _ in stages)
    for number, (stage, artifact) in enumerate(stages, 1):
        state = (
            reasons[stage.name] if artifact is None else f"up to date, {artifact.rows:,} rows{_KEPT if artifact.kept else ''}"
        )
        function = ".".join(stage.step.name.split(".")[-2:])
        lines.append(f"{number:>3}  {stage.name:<{width}}  {stage.kind:<10}  {function:<42}  {state}")
    return lines


def show_lines(shown: Mapping[str, Any]) -> list[str]:
    """The result of ``api.show`` as lines."""
    stages = shown["stages"]
    width = max([len(stage["name"]) for stage in stages] + [5])
    lines = [f"pipeline  {shown['pipeline']}"]
    stale = f", stale: of an earlier run: {shown['stale']}" if "stale" in shown else ""
    lines.append(f"digest    {shown['digest'] or 'none yet'}{stale}")
    lines += [f"lacks     {shown['lacks']}"] if "lacks" in shown else []
    overrides = shown["provenance"]["overrides"]
    if overrides:
        lines.append("overrides " + ", ".join(f"{name} = {value!r}" for name, value in overrides.items()))
    headings = f"{'seconds':>9} {'cpu s':>9} {'memory':>8} {'files':>8}"
    lines += ["", f"{'stage':<{width}} {'rows':>12} {'rejects':>12} {headings}  digest"]
    for stage in stages:
        rejected = f"{sum(stage['rejects'].values()):,}"
        seconds = "" if stage["seconds"] is None else f"{stage['seconds']:.2f}"
        cost = stage.get("cost")
        used = (f"{cost['cpu_seconds']:.2f}", printed_bytes(cost["peak_bytes"])) if cost else ("", "")
        spent = f"{seconds:>9} {used[0]:>9} {used[1]:>8} {printed_bytes(stage['bytes']):>8}"
        lines.append(f"{stage['name']:<{width}} {stage['rows']:>12,} {rejected:>12} {spent}  {stage['digest'][:16]}")
        if cost and cost["retries"]:
            retries = printed_retries(cost["retries"])
            lines.append(f"{'':<{width}}   {retries}: a worker was lost while computing a part, or its machine failed")
        lines += [f"{'':<{width}}   {kept_line(stage['kept'])}"] if "kept" in stage else []
        lines += [f"{'':<{width}} {'':>12} {count:>12,}  {reason}" for reason, count in stage["rejects"].items()]
    if "kept" in shown:
        lines += ["", *kept_lines(shown["kept"])]
    lines += ["", "lineage"]
    for link in reversed(shown["provenance"]["chain"]):
        inputs = [f"{name} {digest[:12]}" for name, digest in link["inputs"].items()]
        settings = link["settings"].items()
        contents = [f"{name} {v['content'][:12]}" for name, v in settings if isinstance(v, dict) and "content" in v]
        lines.append(f"  {link['stage']:<{width}}  {link['step']}  <-  {', '.join([*inputs, *contents]) or 'settings only'}")
    return lines


def printed_bytes(count: float) -> str:
    """A number of bytes with a unit, in at most four digits: ``61 KiB``, ``3.1 GiB``."""
    units = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
    power = min(max(0, (int(count).bit_length() - 1) // 10), len(units) - 1)
    value = count / 1024**power
    return f"{value:.1f} {units[power]}" if power > 1 and value < 10 else f"{value:.0f} {units[power]}"


def printed_retries(count: int) -> str:
    """``1 retry``, ``2 retries``."""
    return f"{count:,} {'retry' if count == 1 else 'retries'}"


def printed_time(seconds: float) -> str:
    """A duration with a unit, in about two digits: ``12 s``, ``3.5 h``, ``41 days``."""
    for unit, size, until in (("s", 1, 120), ("min", 60, 7200), ("h", 3600, 72 * 3600)):
        if seconds < until:
            return f"{seconds / size:.1f} {unit}" if seconds / size < 10 else f"{seconds / size:.0f} {unit}"
    return f"{seconds / 86400:.1f} days" if seconds < 864000 else f"{seconds / 86400:,.0f} days"


def estimate_lines(found: Sequence[CostEstimate]) -> list[str]:
    """The result of ``api.estimate_costs``: a line per stage, the totals, and the limits of the estimate."""
    rows = [
        [
            *(each.stage, f"{each.rows_in:,}", f"{each.rows:,}", printed_time(each.seconds), printed_time(each.cpu_seconds)),
            *(printed_time(each.gpu_seconds) if each.gpu_seconds else "-", printed_bytes(each.bytes)),
            *_printed_peaks([each]),
            f"{each.sample_rows:,}{'*' if each.rough else ''}",
        ]
        for each in found
    ]
    seconds, cpu, gpu = (sum(getattr(each, f"{name}seconds") for each in found) for name in ("", "cpu_", "gpu_"))
    size = printed_bytes(sum(each.bytes for each in found))
    last = ["all", "", "", printed_time(seconds), printed_time(cpu), printed_time(gpu) if gpu else "-", size]
    table = [
        ["stage", "rows in", "rows out", "time", "cpu", "gpu", "files", "memory", "worker", "sample"],
        *(*rows, [*last, *_printed_peaks(found), ""]),
    ]
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    lines = [
        "  ".join([f"{row[0]:<{widths[0]}}", *(f"{cell:>{wide}}" for cell, wide in zip(row[1:], widths[1:], strict=True))])
        for row in table
    ]
    lines += ["", "Time: on the sample's machine, with the same number of workers."]
    lines.append("Memory: of the process with the most; of one worker, where these are processes and not threads.")
    if any(each.peak_at_least for each in found):
        lines.append(
            "+ at least: it may grow with the rows, and the samples do not tell how: use --smaller, or larger samples."
        )
    if any(each.rough for each in found):
        lines.append("* too few parts to separate start-up time from work: use --smaller, or, for stages, a larger sample.")
    return [line.rstrip() for line in lines]


def _printed_peaks(found: Sequence[CostEstimate]) -> list[str]:
    """The largest memory of the process with the most, and of a worker."""
    peaks = [max((getattr(each, name) for each in found), default=0) for name in ("peak_bytes", "worker_peak_bytes")]
    mark = "+" if any(each.peak_at_least for each in found) else ""
    return [f"{printed_bytes(peak)}{mark}" if peak else "-" for peak in peaks]


def encoder_speed_line(speed: EncoderSpeed) -> str:
    """A line of ``probe``."""
    way = f"{speed.backend:<12} {speed.precision:<8}"
    if speed.images_per_s is None:
        return f"{way} not measured: pip install 'benchwright[{speed.lacks}]'"
    facts = f"{speed.images_per_s:8.1f} images/s, {speed.start_s:5.1f} s to start"
    return f"{way} {facts}, cosine to torch in float32 at least {speed.cosine:.6f}"


def name_lines(rows: Sequence[Mapping[str, str]]) -> list[str]:
    """A line per name: what it fits, its origin, and its summary."""
    columns = [max([len(row[column]) for row in rows], default=0) for column in ("name", "fits", "origin")]
    cells = [[row["name"], row["fits"], row["origin"]] for row in rows]
    lines = ["  ".join(f"{cell:<{width}}" for cell, width in zip(each, columns, strict=True)) for each in cells]
    return [on_one_line(f"{line}  {row['summary']}").rstrip() for line, row in zip(lines, rows, strict=True)]


def kept_line(kept: Mapping[str, Any]) -> str:
    """A note that a stage was made by earlier code, and what has changed since."""
    return f"kept: made by earlier code; {kept['changed']} ({kept['at']})"


def kept_lines(kept: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The result of ``api.kept_stages`` as lines."""
    return [f"stage {stage}: {kept_line(how)}" for stage, how in kept.items()]


def printed_kappa(kappa: float) -> str:
    """Fleiss' kappa as text; undefined values are explained."""
    return "undefined: all answers are the same" if math.isnan(kappa) else f"{kappa:.3f}"


def score_lines(results: Mapping[str, Mapping[str, Any]], width: int | None = None) -> list[str]:
    """Metrics, mean and deviation over seeds: a table per protocol, and below all tables the other settings in which lines
    differ. Shares are in percent; degrees, and metrics of one's own beyond 1, are as they are.

    Columns are as wide as needed, numbers are right-aligned with their headings, and trailing blanks are removed. If a line
    would be too long, the settings in its name are moved to a line of their own.

    Args:
        results: result of ``api.scores``.
        width: characters per line; by default the width of the terminal, or 100.
    """
    width = width or shutil.get_terminal_size((100, 24)).columns
    tables = {
        protocol: [_column(metric, list(methods.values())) for metric in next(iter(methods.values()))["mean"]]
        for protocol, methods in results.items()
    }
    widest = max([sum(3 + len(column[0]) for column in columns) for columns in tables.values()], default=0)
    split = {name: split_label(name) for methods in results.values() for name in methods}
    if max(map(len, split), default=0) + widest <= width:
        split = {name: (name, "") for name in split}
    names = max([len(name) for name in (*results, *(first for first, _ in split.values()))], default=0)
    lines: list[str] = []
    for protocol, methods in results.items():
        lines.append("   ".join([f"{protocol:<{names}}", *(column[0] for column in tables[protocol])]).rstrip())
        for name, *cells in zip(methods, *(column[1:] for column in tables[protocol]), strict=True):
            first, settings = split[name]
            lines.append("   ".join([f"{first:<{names}}", *cells]).rstrip())
            lines += [f"  {settings}"] if settings else []
        lines.append("")
    apart = _apart_lines(results, width)
    return [*lines, *apart] if apart else lines[:-1]


_BLANK = "\u00a0"
"""Marks blanks at which lines are not broken."""


def _apart_lines(results: Mapping[str, Mapping[str, Any]], width: int) -> list[str]:
    """Settings in which lines of a table differ and that their names do not show; printed once for tables that agree."""
    tables: dict[tuple[str, ...], list[str]] = {}
    for protocol, methods in results.items():
        found = differences({name: result.get("apart", {}) for name, result in methods.items()})
        differing = (f"{name}: {'; '.join(each.replace(' ', _BLANK) for each in texts)}" for name, texts in found.items())
        tables.setdefault(tuple(differing), []).append(protocol)
    lines: list[str] = []
    for differing, protocols in tables.items():
        which = "" if len(protocols) == len(results) else f", {', '.join(protocols)}"
        lines += [f"Other differences{which}:"] if differing else []
        for each in differing:
            lines += textwrap.wrap(each, max(width, 40), subsequent_indent="  ", break_on_hyphens=False)
    return [line.replace(_BLANK, " ") for line in lines]


def _column(metric: str, results: Sequence[Any]) -> list[str]:
    """Heading and cells of a metric, all of the same width; means are aligned whether they have a deviation or not."""
    means = [result["mean"][metric] for result in results]
    beyond = any(mean is not None and abs(mean) > 1 + 1e-9 for mean in means)
    whole = beyond or any(each.get("unit") == "degrees" for each in results)
    pairs = [_mean_and_deviation(result, metric, *((1, 2) if whole else (100, 1))) for result in results]
    wide = [max(len(pair[part]) for pair in pairs) for part in (0, 1)]
    signs = {True: " ± ", False: "   " if wide[1] else ""}
    cells = [f"{mean:>{wide[0]}}{signs[bool(std)]}{std:>{wide[1]}}" for mean, std in pairs]
    width = max(len(metric), len(cells[0]))
    return [f"{cell:>{width}}" for cell in (metric, *cells)]


def _mean_and_deviation(result: Any, metric: str, times: int, places: int) -> tuple[str, str]:
    mean, std = result["mean"][metric], result["std"][metric]
    if mean is None:
        return "-", ""
    return f"{times * mean:.{places}f}", "" if std is None else f"{times * std:.{places}f}"


_NAMED = 3
"""Number of stale or kept results that are named."""


def stale_line(out: str, stale: Mapping[str, str]) -> str:
    """A warning about stale results; "" if there are none."""
    if not stale:
        return ""
    count = "Stale results are not shown" if len(stale) > 1 else "A stale result is not shown"
    again = (
        f"`benchwright train {out}` brings them up to date, or keeps them with --keep-stale; "
        "give --method and --set as before for those that are not in the settings"
    )
    return f"{count} ({_named(stale)}): {again}"


def kept_results_line(out: str, kept: Mapping[str, str]) -> str:
    """A warning about results that earlier code made and that were kept; "" if there are none."""
    if not kept:
        return ""
    count = "Results that earlier code made are shown" if len(kept) > 1 else "A result that earlier code made is shown"
    return f"{count} ({_named(kept)}): `benchwright train {out}` keeps using them; `benchwright show {out}` lists their stages"


def _named(places: Mapping[str, str]) -> str:
    """The first places, with what is said of each, and the number of the others."""
    named = "; ".join(f"{place}: {why}" for place, why in list(places.items())[:_NAMED])
    return f"{named}; and {len(places) - _NAMED} more" if len(places) > _NAMED else named
