"""The page of one row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...eval.report.blocks import Block, Cell, CellValue, Section, Table, Text
from .pages import cell, filled_page, whole
from .payloads import Payload, curve_points, media_type, motion, text_of, vector_figures
from .run_view import FRAMES, RelatedRow, ShownPicture, ShownRun, payload_address, row_address
from .similarity import neighbours, same_group

_LONGEST = 4000
"""Most characters of a value."""


def row_page(run: ShownRun, stage: str, key: str) -> str:
    """All columns of a row, its payloads, the rows that it was made from, and the rows made from it."""
    row, rows = run.row(stage, key), run.rows(stage)
    found = run.payloads(stage, row)
    fields = {field.name: field for field in rows.schema}
    values: list[Sequence[CellValue]] = [
        [name, cell(row[name], fields[name]) if name not in rows.plain else _whole_cell(row[name])] for name in fields
    ]
    sections = [
        Section("Columns", [Table(["column", "value"], values)]),
        Section("Where it comes from", _ways(run, run.before(stage, row), "Nothing before: the stage is a source.")),
        Section("What became of it", _ways(run, run.after(stage, key), "Nothing after: this is the last stage.")),
    ]
    near, group = neighbours(run, stage, key), same_group(run, stage, row)
    shown = [_shown(run, stage, key, row, payload) for payload in found.values()]
    seen = [payload for payload in found.values() if payload.seen]
    pair = _pair_of([payload.name for payload in seen])
    clip = len(seen) >= FRAMES and not pair
    return filled_page(
        run,
        "row",
        key,
        f"a row of stage {stage}",
        sections=sections,
        payloads=[] if clip else shown,
        others=[one for one in shown if not one["large"]] if clip else [],
        frames=[ShownPicture.of(run, stage, key, payload.name) for payload in seen] if clip else [],
        pairs=_pairs([one for name in pair for one in shown if one["name"] == name]),
        alike=[*([("Near-duplicates", group)] if group else []), *([("Most like it", near)] if near else [])],
        back=f"{run.base}/stage/{stage}",
        stage=stage,
    )


def _pair_of(names: Sequence[str]) -> Sequence[str]:
    """Two pictures that belong together: ``image_1.npy`` and ``image_2.npy``, or all pictures if there are exactly two."""
    for name in names:
        stem, dot, rest = name.partition(".")
        if stem.endswith("_1") and (other := f"{stem[:-1]}2{dot}{rest}") in names:
            return [name, other]
    return names if len(names) == 2 else []


def _pairs(pair: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[tuple[str, str]]]]:
    """Title, and name and address of both pictures: as stored, and corrected by their lights where these are known."""
    found = [("Side by side", [(one["name"], one["large"]) for one in pair])] if pair else []
    if pair and all(one["corrected"] for one in pair):
        found.append(("Side by side, corrected by their lights", [(one["name"], one["corrected"]) for one in pair]))
    return found


def _whole_cell(value: Any) -> Cell:
    if value is None or isinstance(value, int | float):
        return cell(value)
    text = whole(value)
    return Cell(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({len(text):,} letters)")


def _shown(run: ShownRun, stage: str, key: str, row: Mapping[str, Any], payload: Payload) -> Mapping[str, Any]:
    """Values of a payload for the template of its row's page."""
    name = payload.name
    light = _light_of(row, name) if payload.kind == "image" else []
    corrected = {"light": ",".join(f"{value:.6g}" for value in light)}
    return {
        "name": name,
        "kind": payload.kind,
        "summary": payload.summary,
        "file": payload_address(run, stage, key, name, "file"),
        "large": payload_address(run, stage, key, name, "large") if payload.seen else "",
        "corrected": payload_address(run, stage, key, name, "large", **corrected) if light else "",
        "media": media_type(payload.data or b"").partition("/")[0] if payload.kind in ("clip", "sound") else "",
        "clip": payload_address(run, stage, key, name, "clip"),
        "motion": payload_address(run, stage, key, name, "motion") if payload.kind == "skeleton" else "",
        "frames": len(motion(payload)["frames"]) if payload.kind == "skeleton" else 0,
        "text": text_of(payload) if payload.kind == "text" else "",
        "curves": curve_points(payload.array) if payload.kind in ("vector", "array") and payload.array is not None else [],
        "figures": dict(vector_figures(payload.array)) if payload.kind == "vector" and payload.array is not None else {},
    }


def _light_of(row: Mapping[str, Any], name: str) -> list[float]:
    """The colour of the light of an image, if the row contains it: ``gt_1`` for ``image_1.npy``."""
    stem = name.partition(".")[0]
    value = row.get("gt" + stem.removeprefix("image")) if stem.startswith("image") else None
    fits = isinstance(value, list) and len(value) == 3 and all(isinstance(each, float) and each > 0 for each in value)
    return value if fits and value else []


def _ways(run: ShownRun, places: Sequence[RelatedRow], none: str) -> list[Block]:
    if not places:
        return [Text([none])]
    rows: list[Sequence[CellValue]] = [
        [
            Cell(one.stage, href=f"{run.base}/stage/{one.stage}"),
            Cell(one.key, href="" if one.rejected else row_address(run, one.stage, one.key)),
            Cell(f"rejected: {one.note}" if one.rejected else one.note or None, tone="bad" if one.rejected else "plain"),
        ]
        for one in places
    ]
    return [Table(["stage", "key", ""], rows)]
