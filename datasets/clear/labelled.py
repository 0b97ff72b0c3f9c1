"""The source ``labelled``: dated photos with known classes, from class folders or a CSV file; and class labels for the rows."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from ...curation.rows import Rejected, Sifted, printable, with_column
from ...curation.stages.choose import Labelled, choose, class_order
from ...curation.stages.folder import folders_in, open_folder
from ...curation.stages.image_sources import FoundImage, open_dates, read_folder
from ...curation.stages.ranks import in_tables
from ...curation.stages.shortage import OnShortage

if TYPE_CHECKING:
    from ...curation.stage_rows import Rows

__all__ = ["Labelled", "LabelledImage", "label_rows", "read_labelled"]


@dataclasses.dataclass(frozen=True)
class LabelledImage(FoundImage):
    """A ``FoundImage`` with its class as ``concept``."""

    concept: str


def read_labelled(
    piece: str, *, root: str, source_name: str, label_column: str | None, max_bytes: int
) -> Iterator[LabelledImage | Rejected]:
    """Dated photos with known classes in one piece of ``folder_pieces``, from class folders or a CSV file.

    The class is the value in ``label_column`` of the CSV file, by default in the column ``label``; without such a column it is
    the topmost folder of the file's path.

    Args:
        piece, root, source_name, max_bytes: see ``image_sources.read_folder``.
        label_column: column of the CSV file.

    Yields:
        Rows; rejects as for ``read_folder``, and ``no_class``.

    Raises:
        ValueError: the CSV file has no column ``label_column``.
    """
    for found in read_folder(piece, root=root, source_name=source_name, max_bytes=max_bytes):
        if isinstance(found, Rejected):
            yield found
            continue
        name, why = _class_of(found.file, found.labels, label_column)
        if name:
            yield LabelledImage(**vars(found), concept=name)
        else:
            yield Rejected(found.key, "no_class", f"{printable(found.file)}: {why}")


def _class_of(file: str, labels: str, label_column: str | None) -> tuple[str, str]:
    """Class of a photo from its path and labels, and the reason if it has none."""
    known = json.loads(labels)
    if label_column is not None and label_column not in known:
        available = ", ".join(sorted(known)) or "none but those of path and date"
        raise ValueError(f"source.label_column = {label_column!r}: source.csv has no such column: there are {available}")
    named = known.get(label_column or "label")
    folder = file.partition("/")[0] if "/" in file else ""
    message = "it is not in a class folder" if named is None else f"column {label_column or 'label'} is empty"
    return str(folder if named is None else named).strip(), message


def check_background(
    background: str, *, root: str, dates_csv: str | None, columns: Mapping[str, str], label_column: str | None
) -> None:
    """Raise ``ValueError`` with the known classes if no photo of a source can have this class. No photo is read.

    Args:
        background: the class.
        root, dates_csv, columns: see ``folder_pieces``.
        label_column: see ``read_labelled``.
    """
    folder = open_folder(root)
    dates, _ = open_dates(folder, dates_csv, columns)
    files = dates.labels() if dates is not None else ((f"{name}/", "{}") for name in folders_in(folder))
    known = {_class_of(file, labels, label_column)[0] for file, labels in files} - {""}
    if background not in known:
        raise ValueError(f"source.background = {background!r}: {_listed(known)}")


def _listed(names: Iterable[str]) -> str:
    return printable(f"there are {', '.join(sorted(names)) or 'no classes'}")[:400]


def label_rows(
    rows: Rows, *, background: str = "", per_class: int | None = None, seed: int = 0, on_shortage: OnShortage = "keep"
) -> Iterator[pa.Table | Sifted]:
    """Whole step: number the classes, and, with ``per_class``, choose that many images of each bucket and class.

    Args:
        rows: rows with columns ``key``, ``bucket`` and ``concept``.
        background: class that comes first, or ""; the others are in alphabetical order.
        per_class, seed, on_shortage: settings of the random choice, see ``choose``.

    Yields:
        The rows in their order with the columns of ``Labelled``; rows that are not chosen are rejects.

    Raises:
        ValueError: no row has the class ``background``.

    >>> from benchwright.curation.stage_rows import Rows
    >>> rows = Rows.of(pa.table({"key": list("ab"), "bucket": [0, 0], "concept": ["dog", "cat"]}))
    >>> next(label_rows(rows))["label"].to_pylist()
    [1, 0]
    """
    found: list[str] = sorted({name for table in rows.batches(["concept"]) for name in pc.unique(table["concept"]).to_pylist()})
    if background and background not in found:
        raise ValueError(f"source.background = {background!r}: {_listed(found)}")
    names = class_order(found, background)
    if per_class is not None:
        yield from choose(
            rows, classes=names, background=background, on_shortage=on_shortage, per_class=per_class, method="random", seed=seed
        )
        return
    for _, table in in_tables(rows):
        labels = pc.index_in(table["concept"], pa.array(names, pa.string())).cast(pa.int64())  # pyright: ignore[reportAttributeAccessIssue]
        yield with_column(with_column(table, "label", labels), "class_name", table["concept"])
