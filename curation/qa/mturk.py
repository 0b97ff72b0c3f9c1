"""Files to upload to Amazon Mechanical Turk: two HTML forms and the batch CSVs that fill them.

One HIT shows one image. Both forms use the same CSV, with the columns of CLEAR's own batches (``image_url, ID,
bucket_index, query``). The label form returns ``Answer.taskAnswers`` = ``[{"image": {"labels": [...]}}]``, the
sensitive form ``Answer.image-contains.label`` = ``Yes`` or ``No``, which ``mturk_results.read_mturk_results`` reads.

No text of users or photographers reaches a form unescaped: names are escaped by jinja2, ``$`` becomes a
character reference (MTurk would substitute ``${...}``), URLs are percent-encoded, and a CSV field that a spreadsheet
would run as a formula gets a leading apostrophe, which the import removes.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import shutil
import urllib.parse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa

from ..bounded_reading import parse_json, read_stream
from ..local_files import holds_files, remove, replacing
from ..records import TEMPORARY, write_file
from ..rng import uniform
from ..rows import Blob, Reject
from .options import LABELS_PROMPT, NONE_OF_THE_ABOVE, SENSITIVE_PROMPT, Option, check_options, check_text, classes_to_answers
from .votes import FORMS

TaskImages = Mapping[str, bytes | Blob]
"""Key -> bytes of an image file, or a ``Blob`` that refers to them."""

_QUALITIES = (85, 75, 60, 45, 30)


def data_uri(images: TaskImages, key: str, *, side_px: int, limit_bytes: int | None = None) -> str:
    """Return a JPEG thumbnail of image ``key`` as ``data:`` URI; its longer side has at most ``side_px`` pixels, and smaller
    images keep their size.

    Args:
        limit_bytes: maximum length of the URI. The JPEG quality is reduced from 85 down to 30 to meet it.

    Raises:
        ValueError: the image is missing or does not decode, or the URI is too long even at quality 30.
    """
    from PIL import Image

    from ..stages.images import decode_rgb

    if side_px < 16:
        raise ValueError(f"thumbnail of {side_px} px: too small to judge; at least 16 px are needed")
    source = images.get(key)
    if source is None:
        raise ValueError(f"image {key!r}: there are no bytes for it")
    try:
        pixels = decode_rgb(source.read() if isinstance(source, Blob) else source, min_short_side_px=side_px)
    except Reject as reject:
        raise ValueError(f"image {key!r}: {reject.reason} {reject.detail}".rstrip()) from reject
    image = Image.fromarray(pixels)
    image.thumbnail((side_px, side_px), Image.Resampling.LANCZOS)
    size = 0
    for quality in _QUALITIES:
        data = io.BytesIO()
        image.save(data, format="JPEG", quality=quality)
        size = len("data:image/jpeg;base64,") + 4 * ((data.tell() + 2) // 3)
        if limit_bytes is None or size <= limit_bytes:
            return "data:image/jpeg;base64," + base64.b64encode(data.getvalue()).decode("ascii")
    raise ValueError(
        f"image {key!r}: its thumbnail of {side_px} px takes {size:,} bytes; MTurk leaves {limit_bytes:,} beside the "
        f"form (65,535 in all): make the thumbnails smaller, or give URLs"
    )


COLUMNS = ("image_url", "ID", "bucket_index", "query")
FIELD_LIMIT_BYTES = 65_535
"""Maximum size of a question in MTurk: the form with its variables filled in."""

Medium = Literal["image", "video", "page"]
"""Type of an address: an image, a video file, or a page that is opened next to the form."""

_FORMS = Path(__file__).parent / "forms"
_FORMULA = ("=", "+", "-", "@")


class Export(NamedTuple):
    """Result of ``export_batches``: the files to upload, and the gold questions in them, key -> right class."""

    forms: tuple[Path, ...]
    batches: tuple[Path, ...]
    gold: Mapping[str, str]


class Gold(NamedTuple):
    """Gold questions: questions with known answers, mixed into every batch to measure the accuracy of workers.

    Args:
        table: ``key``, ``concept`` (the right class, or the background class), and ``url`` unless thumbnails are used.
        per_batch: number of gold questions per batch; they repeat only after all have been used.
        images: ``key`` -> bytes, if thumbnails are used.
    """

    table: pa.Table
    per_batch: int
    images: TaskImages | None = None


def export_batches(
    table: pa.Table,
    folder: str,
    *,
    options: Sequence[Option],
    background: str,
    seed: int,
    batch_size: int | None = None,
    images: TaskImages | None = None,
    thumbnail_px: int = 320,
    gold: Gold | None = None,
    instructions: str = "",
    prompt: str = "",
    medium: Medium = "image",
    forms: Sequence[str] = FORMS,
) -> Export:
    """Write ``folder/upload/`` (``labels.html``, ``sensitive.html``, one CSV per batch) and ``folder/private/``.

    Args:
        table: ``key`` (string), ``bucket`` (int), ``concept`` (class name) and, without ``images``, ``url`` (http or
            https).
        folder: a new or empty folder, or one with an earlier export, which is replaced.
        options: the choices of the label form, in the order in which workers see them; one for every class of
            ``table``.
        background: the class whose right answer is "None of the above".
        seed: seed for the choice and positions of gold questions.
        batch_size: maximum number of images per batch, without gold questions; None makes one batch per bucket.
        images: ``key`` -> bytes or ``Blob``: put thumbnails into the CSV (``data:`` URIs) instead of URLs.
        thumbnail_px: longest side of a thumbnail, in pixels.
        gold: gold questions. Only ``private/gold_key.json``, which is not for upload, lists their keys and right answers.
        instructions: plain text above the question.
        prompt: the question about the classes; "" for CLEAR's.
        medium: type of the addresses.
        forms: the forms to ask.

    Raises:
        ValueError: a missing column, a class without option, an address that is not an http(s) URL, a key that occurs
            twice or cannot be written, a form that is too large with its image, or a folder that holds other files.
    """
    check_options(options, background=background)
    _check_table(table, "images", options, background, needs=["bucket"] + ([] if images is not None else ["url"]))
    if gold is not None:
        _check_table(gold.table, "gold questions", options, background, needs=[] if gold.images is not None else ["url"])
        _check_gold(gold, table)
    root = Path(folder)
    earlier = _earlier_files(root)
    staging = root.absolute().with_name(f"{TEMPORARY}{root.absolute().name}")
    texts = {"instructions": instructions, "prompt": prompt}
    pages = {f"{name}.html": render_form(name, options, medium=medium, **texts) for name in forms}
    room = FIELD_LIMIT_BYTES - max(map(len, pages.values()))
    if room < 0:
        size = f"{FIELD_LIMIT_BYTES - room:,} bytes with its {len(options)} options, and MTurk accepts {FIELD_LIMIT_BYTES:,}"
        raise ValueError(f"the form has {size}: ask in Label Studio (--tool label-studio)")
    sums: dict[str, str] = {}
    placed: dict[str, str] = {}
    shutil.rmtree(staging, ignore_errors=True)  # left by an interrupted export
    try:
        for name, text in pages.items():
            sums[name] = _write(staging / "upload" / name, text)
        for number, (name, rows) in enumerate(_batches(table, batch_size)):
            lines = [_line(row, images, thumbnail_px, room) for row in rows]
            if gold is not None:
                golden = _gold_rows(gold, number, rows[0]["bucket"], seed)
                placed |= {row["key"]: row["concept"] for row in golden}
                lines = _mix(lines, [_line(row, gold.images, thumbnail_px, room) for row in golden], name, seed)
            sums[f"{name}.csv"] = _write(staging / "upload" / f"{name}.csv", _csv(lines))
        if gold is not None:
            _write(staging / "private" / "gold_key.json", _json({"gold": dict(sorted(placed.items()))}))
            (staging / "private" / "gold_key.json").chmod(0o600)
        _write(staging / "export.json", _json({"images": table.num_rows, "upload": sums}))
        _replace(root, staging, earlier)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    written = [root / "upload" / name for name in sums]
    return Export(tuple(written[: len(pages)]), tuple(written[len(pages) :]), placed)


def render_form(
    name: str, options: Sequence[Option], *, instructions: str = "", prompt: str = "", medium: Medium = "image"
) -> bytes:
    """Render the HTML of form ``labels`` or ``sensitive``, as pure ASCII (other characters become references).

    MTurk replaces ``${image_url}`` by the image; any other ``$`` is written as ``&#36;``.
    """
    import jinja2
    import markupsafe

    def no_variables(value: Any) -> Any:
        if isinstance(value, str) and not isinstance(value, markupsafe.Markup):
            return markupsafe.Markup(str(markupsafe.escape(value)).replace("$", "&#36;"))
        return value

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_FORMS), autoescape=True, undefined=jinja2.StrictUndefined, finalize=no_variables
    )
    text = environment.get_template(f"{name}.html").render(
        options=options,
        none_of_the_above=NONE_OF_THE_ABOVE,
        instructions=instructions,
        prompt=prompt or markupsafe.Markup(LABELS_PROMPT),
        sensitive_prompt=SENSITIVE_PROMPT,
        medium=medium,
    )
    return text.encode("ascii", "xmlcharrefreplace")


def read_json_file(path: Path) -> Any:
    """Read a JSON file. Raises ``ValueError`` naming the file if it is not JSON or too large."""
    with path.open("rb") as stream:
        data = read_stream(stream, str(path))
    try:
        return parse_json(data)
    except ValueError as error:
        raise ValueError(f"{path}: not readable as JSON: {type(error).__name__}: {error}") from None


def guard_formula(text: str) -> str:
    """Put an apostrophe before text that a spreadsheet would run as a formula. ``unguard_formula`` removes it."""
    return "'" + text if text.lstrip("'").startswith(_FORMULA) else text


def unguard_formula(text: str) -> str:
    """The inverse of ``guard_formula``."""
    return text[1:] if text.startswith("'") and text.lstrip("'").startswith(_FORMULA) else text


def check_needs(table: pa.Table, what: str, needs: Sequence[str]) -> None:
    """Raise ``ValueError`` if the table lacks one of these columns."""
    if missing := [name for name in needs if name not in table.column_names]:
        raise ValueError(f"{what}: no column {', '.join(map(repr, missing))}; there are {', '.join(table.column_names)}")


def _check_table(table: pa.Table, what: str, options: Sequence[Option], background: str, needs: list[str]) -> None:
    check_needs(table, what, ["key", "concept", *needs])
    unknown = set(table["concept"].unique().to_pylist()) - set(classes_to_answers(options)) - {background}
    if unknown:
        raise ValueError(f"{what}: class {min(map(str, unknown))!r} has no option in the label form")
    keys = table["key"]
    if len(keys) == 0:
        raise ValueError(f"{what}: the table has no rows")
    if len(keys.unique()) < len(keys):
        raise ValueError(f"{what}: a key occurs twice; every image is asked about once")


def _check_gold(gold: Gold, table: pa.Table) -> None:
    if not 0 < gold.per_batch <= gold.table.num_rows:
        raise ValueError(f"gold.per_batch = {gold.per_batch}: it must be between 1 and the {gold.table.num_rows} questions")
    both = set(gold.table["key"].to_pylist()) & set(table["key"].to_pylist())
    if both:
        raise ValueError(f"gold question {min(both)!r} is also an image of the run: its answer would count twice")


def _earlier_files(root: Path) -> list[Path]:
    """The files of an earlier export in the folder. Raises ``ValueError`` if the folder has files but no export."""
    record = root / "export.json"
    if not record.is_file():
        if holds_files(root):
            raise ValueError(f"{root}: it contains files that are not an earlier export; choose a new or empty folder")
        return []
    content = read_json_file(record)
    if not isinstance(content, dict) or not isinstance(content.get("upload"), dict):
        raise ValueError(f"{record}: not the record of an export: it has no object 'upload'; choose a new or empty folder")
    return [*(root / "upload" / Path(name).name for name in content["upload"]), root / "private" / "gold_key.json"]


def _replace(root: Path, staging: Path, earlier: Sequence[Path]) -> None:
    """Replace an earlier export by the finished one; other files in the folder stay."""
    for path in earlier:
        if path.is_file():
            remove(path)
    for path in sorted(path for path in staging.rglob("*") if path.is_file()):
        with replacing(root / path.relative_to(staging)) as temporary:
            path.replace(temporary)


def _batches(table: pa.Table, batch_size: int | None) -> list[tuple[str, list[dict[str, Any]]]]:
    if batch_size is not None and batch_size < 1:
        raise ValueError(f"batch_size = {batch_size}: a batch has at least one image")
    columns = [name for name in ("key", "bucket", "concept", "url") if name in table.column_names]
    rows = table.select(columns).to_pylist()
    if batch_size is not None:
        parts = [rows[start : start + batch_size] for start in range(0, len(rows), batch_size)]
        return [(f"batch{number:05d}", part) for number, part in enumerate(parts)]
    buckets: dict[int, list[dict[str, Any]]] = {}
    for row in rows:
        buckets.setdefault(row["bucket"], []).append(row)
    return [(f"bucket{bucket:02d}", part) for bucket, part in sorted(buckets.items())]


def _gold_rows(gold: Gold, number: int, bucket: int, seed: int) -> list[dict[str, Any]]:
    rows = gold.table.select([name for name in ("key", "concept", "url") if name in gold.table.column_names]).to_pylist()
    order = np.argsort(uniform(seed, "qa_gold", [row["key"] for row in rows]), kind="stable")
    start = number * gold.per_batch
    return [rows[order[(start + i) % len(rows)]] | {"bucket": bucket} for i in range(gold.per_batch)]


def _mix(lines: list[list[str]], golden: list[list[str]], where: str, seed: int) -> list[list[str]]:
    """Insert the gold lines at positions drawn by their key; the other lines keep their order."""
    places = uniform(seed, "qa_gold_place", [f"{where} {line[1]}" for line in golden]) * (len(lines) + 1)
    after: dict[int, list[list[str]]] = {}
    for place, line in zip(places.astype(int).tolist(), golden, strict=True):
        after.setdefault(place, []).append(line)
    mixed = [gold for i, line in enumerate(lines) for gold in (*after.get(i, []), line)]
    return mixed + after.get(len(lines), [])


def _line(row: dict[str, Any], images: TaskImages | None, thumbnail_px: int, room: int) -> list[str]:
    key, bucket = row["key"], row["bucket"]
    check_text(key, "key")
    if bucket is None or bucket < 0:
        raise ValueError(f"image {key!r}: bucket {bucket} is not a number from 0 on")
    if any(ord(letter) > 0xFFFF for letter in key + row["concept"]):
        raise ValueError(f"image {key!r} of class {row['concept']!r}: MTurk accepts no characters beyond U+FFFF in a CSV")
    if images is not None:
        address = data_uri(images, key, side_px=thumbnail_px, limit_bytes=room)
    else:
        address = web_address(key, row["url"])
        if len(address) > room:
            raise ValueError(f"image {key!r}: its URL has {len(address)} bytes, and the form leaves {room}")
    return [address, guard_formula(key), str(bucket), guard_formula(row["concept"])]


def web_address(key: str, url: str | None) -> str:
    """An address, escaped for use in a page. Raises ``ValueError`` if it is not http or https."""
    parts = urllib.parse.urlsplit(url or "")
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise ValueError(f"image {key!r}: {url!r:.80} is not an http(s) URL; give images= to send thumbnails instead")
    # Legal characters of a URL stay; quotes, angle brackets and spaces could end the attribute, `${` would be substituted.
    return urllib.parse.quote(parts.geturl(), safe=":/?#[]@!&()*+,;=%-._~")


def _csv(lines: list[list[str]]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(COLUMNS)
    writer.writerows(lines)
    return text.getvalue().encode("utf-8")


def _json(value: Mapping[str, Any]) -> bytes:
    return (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode("utf-8")


def _write(path: Path, data: bytes) -> str:
    """Write a file and return its SHA-256."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, data)
    return hashlib.sha256(data).hexdigest()
