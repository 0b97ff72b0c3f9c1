"""Rows and samples in the report of any run: rejected rows by reason, and some published samples, with pictures."""

from __future__ import annotations

import json
import posixpath
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from PIL import Image

from ..curation.artifact import Artifact
from ..curation.part_writer import folder
from ..curation.qa.rounds import Round
from ..curation.rows import Reject, is_array, is_blob
from ..curation.shards import read_sample
from ..curation.stage_rows import Rows
from ..curation.stages.decode import decoded_rgb
from ..curation.stages.image_format import PILLOW_NAMES, sniff_extension
from ..curation.store import Store
from ..datasets.reader.decode import decode_npy
from ..eval.report.blocks import Album, Band, Block, Cell, CellValue, ImageGrid, Section, Table, Text, Thumb
from ..eval.report.images import encode, enlarged

_SIDE_PX = 96
_EXAMPLES = 6
"""Most rejected rows for each reason, and pictures of them."""
_REASONS = 12
"""Most reasons with pictures, those with the most rows."""
_SAMPLES = 12
_SHOWN = 6
"""Most samples in the table; all ``_SAMPLES`` are shown as pictures."""
_COLUMNS = 8
"""Most columns of a table, and most files of a sample."""
_LETTERS = 80
_ITEMS = 4
"""Most items of a list."""
_MOST_BYTES = 1 << 26
"""Larger payloads are not read."""
_MOST_PIXELS = 30_000_000
_UNSHOWN = ("sensitive", "sensitive_score")
"""Reasons whose pictures are not shown in a report."""
_ORDERED = ("bucket", "task", "year", "increment")
"""Columns that may order the band of samples: the first that exists is used."""
_GROUPS, _EACH = 10, 3
"""Most times or tasks in the band, and pictures of each."""
_PLACE = ("key", "shard", "offset", "size", "sha256")


# ------------------------------------------------------------------------------------------------------------- rejects


def rejects_sections(store: Store, made: Mapping[str, Artifact]) -> list[Section]:
    """Rejected rows by stage and reason, with an example of each and their pictures; empty if no row was rejected.

    Args:
        store: the run.
        made: its finished stages, by name.
    """
    lines: list[Sequence[CellValue]] = []
    shown: list[tuple[int, ImageGrid]] = []
    broken = 0
    hidden = any(reason in _UNSHOWN for artifact in made.values() for reason in artifact.rejects)
    for stage, artifact in made.items():
        examples = _examples(store, artifact)
        for reason, count in sorted(artifact.rejects.items(), key=lambda each: (-each[1], each[0])):
            rows = examples.get(reason, [])
            first = rows[0] if rows else {"key": None, "detail": None}
            example = _cell(first["key"], code=True)
            lines.append([stage, reason, count, example, _cell(first["detail"])])
            keys = [row["key"] for row in rows] if reason not in _UNSHOWN else []
            thumbs, lost = pictures_of(store, artifact, made, keys)
            broken += lost
            if thumbs:
                shown.append((count, ImageGrid(f"{stage}: {reason}", thumbs, _SIDE_PX)))
    if not lines:
        return []
    most = sorted(range(len(shown)), key=lambda at: -shown[at][0])[:_REASONS]
    blocks: list[Block] = [Table(["stage", "reason", "rows", "example", "detail"], lines)]
    if shown:
        text = f"The first {_EXAMPLES} pictures rejected for each reason, as they were before the stage."
        more = f" {broken} of them cannot be shown." if broken else ""
        more += " Pictures rejected as sensitive are not shown." if hidden else ""
        grids = [((shown[at][1].title,), shown[at][1]) for at in sorted(most)]
        blocks += [Text([text + more]), Album(["reason"], grids)]
    return [Section("Rejected rows", blocks)]


def _examples(store: Store, artifact: Artifact) -> dict[str, list[dict[str, str]]]:
    """The first rejected rows of each reason, in the order of the stage."""
    found: dict[str, list[dict[str, str]]] = {reason: [] for reason in artifact.rejects}
    for name in artifact.reject_files():
        if all(len(found[reason]) >= min(_EXAMPLES, count) for reason, count in artifact.rejects.items()):
            break
        table = store.read_parquet(name)
        for reason, rows in found.items():
            mine = table.filter(pc.equal(table["reason"], reason)).slice(0, _EXAMPLES - len(rows))
            rows += mine.to_pylist()
    return found


def pictures_of(store: Store, artifact: Artifact, made: Mapping[str, Artifact], keys: Sequence[str]) -> tuple[list[Thumb], int]:
    """Pictures that rows had before this stage, in the order of ``keys``, and how many cannot be shown."""
    found: dict[str, Any] = {}
    for name in artifact.recipe["inputs"] if keys else ():
        if name not in made:
            continue
        rows = made[name].rows_view(store)
        for column in [field.name for field in rows.schema if is_blob(field)]:
            refs = _payloads(rows, column, keys)
            if any(_is_picture(store.blob(ref).read()) for ref in list(refs.values())[:1]):
                found = refs
                break
    thumbs = _thumbs((key, store.blob(found[key]).read()) for key in keys if key in found and found[key]["size"] < _MOST_BYTES)
    return thumbs, len(found) - len(thumbs)


def _payloads(rows: Rows, column: str, keys: Sequence[str]) -> dict[str, Any]:
    """Key -> reference of a payload, for rows that have one; reads only as many batches as needed."""
    wanted = pa.array(keys, pa.string())
    found: dict[str, Any] = {}
    for table in rows.batches(["key", column]):
        mine = table.filter(pc.and_(pc.is_in(table["key"], value_set=wanted), table[column].is_valid()))
        found |= dict(zip(mine["key"].to_pylist(), mine[column].to_pylist(), strict=True))
        if len(found) == len(keys):
            break
    return found


def _is_picture(data: bytes) -> bool:
    return sniff_extension(data) in PILLOW_NAMES


def _thumbs(pictures: Iterable[tuple[str, bytes]], side_px: int = _SIDE_PX) -> list[Thumb]:
    """Thumbnails of the pictures that can be shown."""
    thumbs: list[Thumb] = []
    side_px = enlarged(side_px)
    for key, data in pictures:
        try:
            with decoded_rgb(data, min_short_side_px=side_px, max_pixels=_MOST_PIXELS) as pixels:
                picture = Image.fromarray(pixels)
        except Reject:  # broken or too large, which may be why it was rejected
            continue
        picture.thumbnail((side_px, side_px))
        thumbs.append(Thumb(encode(picture), key))
    return thumbs


# --------------------------------------------------------------------------------------------------------------- votes


def disputed(store: Store, asked: Round, made: Artifact, votes: pa.Table) -> list[ImageGrid]:
    """Pictures with the least agreement on their classes, and the answers; empty if annotators agree, or without pictures.

    Args:
        store: the run.
        asked: the round of questions.
        made: the stage whose rows were asked about.
        votes: votes of the round.
    """
    vote_rows = votes.select(["key", "form", "labels", "sensitive"]).to_pylist()
    unseen = {row["key"] for row in vote_rows if row["sensitive"]}
    answers: dict[str, Counter[str]] = defaultdict(Counter)
    for row in vote_rows:
        if row["form"] == "labels" and row["key"] not in unseen:
            answers[row["key"]][" and ".join(row["labels"] or ()) or "none of the above"] += 1
    agreement = {key: max(each.values()) / each.total() for key, each in answers.items()}
    least = sorted((share, key) for key, share in agreement.items() if share < 1)[:_SAMPLES]
    captions = {
        key: ", ".join(f"{n} {answer}" for answer, n in sorted(answers[key].items(), key=lambda item: (-item[1], item[0])))
        for _, key in least
    }
    refs = _payloads(made.rows_view(store), asked.image, list(captions)) if captions else {}
    there = {key: store.blob(refs[key]).read() for key in captions if key in refs and refs[key]["size"] < _MOST_BYTES}
    thumbs = [Thumb(one.image, f"{captions[one.caption]} ({one.caption})") for one in _thumbs(there.items())]
    return [ImageGrid("Pictures with the least agreement between annotators", thumbs, _SIDE_PX, whole=True)] if thumbs else []


# ------------------------------------------------------------------------------------------------------------- samples


def samples_sections(store: Store, artifact: Artifact) -> list[Section]:
    """Some rows of the last stage, evenly spaced: their pictures, a table of their columns and one of their files."""
    if not artifact.rows:
        return []
    rows = artifact.rows_view(store)
    at = _spaced(artifact.rows, _SAMPLES)
    count = len(at)
    table = pa.concat_tables([rows.slice(n, n + 1) for n in at])
    found = [_members(store, artifact, row) for row in table.to_pylist()]
    thumbs = _thumbs(
        (key, next(data for data in members.values() if _is_picture(data)))
        for key, members in zip(table["key"].to_pylist(), found, strict=True)
        if any(map(_is_picture, members.values()))
    )
    few = [*range(0, count, -(-count // _SHOWN))]
    blocks: list[Block] = [ImageGrid("Pictures", thumbs, _SIDE_PX)] if thumbs else []
    spread = "All rows" if count == artifact.rows else f"{count} of {artifact.rows:,} rows, evenly spaced"
    intro = Text([f"{spread}, of stage {artifact.stage}."])
    return [Section("Samples", [intro, *blocks, *_tables(table.take(pa.array(few)), [found[n] for n in few])])]


def sample_band(store: Store, artifact: Artifact, by: str = "", names: Mapping[Any, str] | None = None) -> list[Band]:
    """Pictures of the last stage for a first look, in the order of its times or tasks; empty if it has no pictures.

    Args:
        store: the run.
        artifact: artifact of its last stage.
        by: column of times or tasks, if it exists; "" for the first of those that pipelines have.
        names: value of the column -> its name; other values are named by the column and the value.
    """
    if not artifact.rows:
        return []
    rows = artifact.rows_view(store)
    by = next((name for name in ([by] if by else _ORDERED) if name in rows.column_names), "")
    groups: dict[Any, Any] = {"": np.arange(artifact.rows)}
    if by:
        values = rows.table([by])[by].to_pylist()
        places = np.array([str(value) for value in values])
        groups = {value: np.flatnonzero(places == str(value)) for value in sorted({*values} - {None})}
    evenly = [*groups][:: -(-len(groups) // _GROUPS)]
    each = _EACH if by else _SAMPLES
    chosen = {value: groups[value][_spaced(len(groups[value]), each)].tolist() for value in evenly}
    shown: list[tuple[str, Sequence[Thumb]]] = []
    for value, places in chosen.items():
        members = [_members(store, artifact, rows.slice(at, at + 1).to_pylist()[0]) for at in places]
        keys = [rows.slice(at, at + 1)["key"][0].as_py() for at in places]
        first = ((key, next(filter(_is_picture, found.values()), b"")) for key, found in zip(keys, members, strict=True))
        thumbs = _thumbs(((key, data) for key, data in first if data), Band.side_px)
        name = (names or {}).get(value, f"{by.replace('_', ' ')} {value}") if by else ""
        shown += [(name, thumbs)] if thumbs and by else [("", [one]) for one in thumbs]
    left = f", {len(evenly)} of {len(groups)}" if len(evenly) < len(groups) else ""
    caption = f"Samples by {by.replace('_', ' ')}{left}" if by else "Samples, evenly spaced"
    return [Band(shown, caption)] if shown else []


def _spaced(count: int, wanted: int) -> list[int]:
    wanted = min(count, wanted)
    return [count * (2 * n + 1) // (2 * wanted) for n in range(wanted)]


def _members(store: Store, artifact: Artifact, row: Mapping[str, Any]) -> dict[str, bytes]:
    """Payloads of a row: the members of its sample in a shard, or its payloads by column."""
    if artifact.kind == "shards":
        if row["size"] > _MOST_BYTES:
            return {}
        name = posixpath.join(folder(artifact.stage), f"{row['shard']}.tar")
        return read_sample(store.read(name, row["offset"], row["size"]), row["key"], place=name, base=row["offset"])
    fields = [field for field in artifact.rows_view(store).schema if is_blob(field) and row[field.name]]
    return {one.name: store.blob(row[one.name]).read() for one in fields if row[one.name]["size"] < _MOST_BYTES}


def _tables(table: pa.Table, found: Sequence[Mapping[str, bytes]]) -> list[Block]:
    plain = [field.name for field in table.schema if not (is_blob(field) or is_array(field) or field.name in _PLACE)]
    keys = table["key"].to_pylist()
    blocks: list[Block] = []
    if plain:
        values = table.select(plain[:_COLUMNS]).to_pylist()
        lines: list[Sequence[CellValue]] = [
            [_cell(key), *map(_cell, row.values())] for key, row in zip(keys, values, strict=True)
        ]
        more = f", the first {_COLUMNS} of {len(plain)}" if len(plain) > _COLUMNS else ""
        blocks.append(Table(["key", *plain[:_COLUMNS]], lines, f"Columns{more}", as_found=True))
    names = list(dict.fromkeys(name for members in found for name in members))[:_COLUMNS]
    if names:
        lines = [
            [_cell(key), *(_cell(_holds(members.get(name))) for name in names)]
            for key, members in zip(keys, found, strict=True)
        ]
        blocks.append(Table(["key", *names], lines, "Files of the samples"))
    return blocks


def _holds(data: bytes | None) -> str | None:
    """Short description of a file: the kind of picture or array, or the text."""
    if data is None:
        return None
    if extension := sniff_extension(data):
        return f"{extension}, {len(data):,} bytes"
    try:
        if data.startswith(b"\x93NUMPY"):
            array = decode_npy(data)
            return f"{array.dtype} ({', '.join(map(str, array.shape))})"
        text = json.dumps(json.loads(data), ensure_ascii=False) if data[:1] in (b"{", b"[") else data.decode()
        if " ".join(text.split()).isprintable():
            return text
    except ValueError:
        pass
    return f"{len(data):,} bytes"


def _cell(value: Any, *, code: bool = False) -> Cell:
    """A value cut to fit into a table; the full text is shown when hovering."""
    if value is None or isinstance(value, int | float):
        return Cell(value)
    if isinstance(value, list):
        more = f", ... ({len(value)})" if len(value) > _ITEMS else ""
        value = ", ".join(f"{item:.4g}" if isinstance(item, float) else str(item) for item in value[:_ITEMS]) + more
    text = " ".join(str(value).split())
    short = text if len(text) <= _LETTERS else f"{text[: _LETTERS - 1]}…"
    return Cell(short, code=code, title=text[:2000] if short != text else "")
