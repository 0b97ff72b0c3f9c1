"""The vectors of a stage: search for the rows most similar to a text, a picture or another row."""

from __future__ import annotations

import dataclasses
import functools
import math
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ...curation.artifact import Artifact
from ...curation.encoders.encoder import Encoder, unit_rows
from ...curation.encoders.loading import load_encoder
from ...curation.encoders.spec import EncoderSpec, OpenClip
from ...curation.extras import lacking
from ...curation.keys import fingerprint
from ...curation.rows import Reject, is_array, one_line, printable
from ...curation.stage_rows import gather_arrays
from ...curation.stages.topk import TopK
from ...curation.store import StoreError
from .query import Refused, one_at_a_time
from .run_view import NotThere, ShownRun

MOST_ALIKE = 1000
"""Most rows that a search returns."""
SECONDS = 30.0
"""Time limit for reading the vectors of a stage."""
_BLOCK_ROWS = 8192
_SPECS: Mapping[str, type[EncoderSpec]] = {spec.__name__: spec for spec in get_args(EncoderSpec)}
_ENCODING = threading.Lock()
"""Encoders take all cores and much memory: only one runs at a time."""


def vector_columns(schema: pa.Schema) -> list[str]:
    """Columns that hold a vector per row."""
    return [field.name for field in schema if is_array(field) and b"," not in (field.metadata or {}).get(b"shape", b",")]


@dataclasses.dataclass(frozen=True)
class VectorColumn:
    """A column of vectors of a finished stage.

    Attributes:
        run: the run.
        stage: name of the stage.
        column: name of the column.
    """

    run: ShownRun
    stage: str
    column: str

    @classmethod
    def of(cls, run: ShownRun, stage: str, column: str = "") -> VectorColumn:
        """A column of vectors, by default the first. Raises ``NotThere`` if there is none, or the stage is not finished."""
        if run.artifact(stage) is None:
            raise NotThere(f"stage {stage} is not finished: its vectors are searched once it is")
        columns = vector_columns(run.rows(stage).schema)
        if not columns or (column and column not in columns):
            raise NotThere(f"stage {stage} has no vectors {column[:80]}: there are {', '.join(columns) or 'none'}")
        return cls(run, stage, column or columns[0])

    @property
    def artifact(self) -> Artifact:
        """Artifact of the stage."""
        artifact = self.run.artifact(self.stage)
        if artifact is None:
            raise NotThere(f"stage {self.stage} is not finished")
        return artifact

    @property
    def width(self) -> int:
        """Width of a vector."""
        refs = self.artifact.rows_view(self.run.store).slice(0, 1, [self.column])[self.column]
        return self._stacked(refs).shape[1] if len(refs) else 0

    def blocks(self, step: int = 1) -> Iterator[tuple[NDArray[np.int64], NDArray[Any]]]:
        """Row numbers and their stored vectors, in blocks of up to ``_BLOCK_ROWS``: of every row, or of each ``step``th.

        Raises:
            Refused: a row has no vector, or reading takes too long.
        """
        ends, first = time.monotonic() + SECONDS, 0
        for table in self.artifact.rows_view(self.run.store).batches([self.column]):
            refs = table[self.column]
            if refs.null_count:
                raise Refused(f"{refs.null_count} rows of stage {self.stage} have no {self.column}: no search goes over them")
            wanted = np.arange(-first % step, len(refs), step)
            for start in range(0, len(wanted), _BLOCK_ROWS):
                if time.monotonic() > ends:
                    raise Refused(f"to read the vectors of stage {self.stage} took more than {SECONDS:.0f} s")
                places = wanted[start : start + _BLOCK_ROWS]
                part = refs.slice(int(places[0]), int(places[-1] - places[0]) + 1)
                yield first + places, self._stacked(part if step == 1 else part.take(pa.array(places - places[0])))
            first += len(refs)

    def _stacked(self, refs: pa.ChunkedArray) -> NDArray[Any]:
        for name in pc.unique(pc.struct_field(refs, "file")).to_pylist():  # pyright: ignore[reportAttributeAccessIssue]
            self.run.file(name)
        try:
            found = gather_arrays(self.run.store, refs)
        except (IndexError, ValueError, TypeError) as error:
            raise StoreError(f"column {self.column} of stage {self.stage} is damaged: {error}") from error
        if found.ndim != 2 or found.dtype.kind not in "fiu":
            raise Refused(f"column {self.column} of stage {self.stage} holds {found.dtype} {found.shape[1:]}: no vectors")
        return found

    def one(self, key: str) -> NDArray[np.float32]:
        """The vector of a row."""
        payload = self.run.payload(self.stage, key, self.column)
        return np.asarray(payload.array, dtype=np.float32)

    def alike(
        self, wanted: NDArray[np.float32], most: int = MOST_ALIKE, among: NDArray[np.bool_] | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Numbers of the rows with the greatest cosines to a vector, and these cosines; ties in the order of the stage.

        Args:
            wanted: the vector.
            most: largest number of rows.
            among: for each row whether it is considered; None: all rows.
        """
        unit = unit_rows(np.asarray(wanted, dtype=np.float32)[None])
        if wanted.shape != (self.width,):
            raise Refused(f"a vector of {wanted.size} values: those of {self.column} have {self.width}")
        if not np.isfinite(unit).all() or not unit.any():
            raise Refused("its vector is zero or not finite: it has no similar rows")
        try:
            best = TopK(unit, most)
            for numbers, block in self.blocks():
                kept = slice(None) if among is None else among[numbers]
                best.add(unit_rows(np.nan_to_num(block[kept], posinf=0.0, neginf=0.0)), numbers[kept])
            scores, ids, _ = best.result()
        except ImportError as error:
            raise Refused(f"searching vectors: {lacking(error) or error}") from error
        there = ids[0] >= 0
        return ids[0][there], scores[0][there]


# -------------------------------------------------------------------------------------------------------------- encoders


@dataclasses.dataclass(frozen=True)
class EncodedBy:
    """How a column of vectors was made.

    Attributes:
        spec: the encoder; None if it cannot be loaded here.
        weights: content digest of its checkpoint, "" if it has none.
        reason: why it cannot be loaded here, in one line.
    """

    spec: EncoderSpec | None
    weights: str = ""
    reason: str = ""


def made_by(vectors: VectorColumn) -> EncodedBy:
    """How a column of vectors was made, from the recipe of the stage that first had the column."""
    artifact, column = vectors.artifact, f"{vectors.column}: "
    while True:
        before = (vectors.run.artifact(name) for name in artifact.recipe["inputs"])
        found = next((one for one in before if one and any(each.startswith(column) for each in one.recipe["columns"])), None)
        if found is None:
            break
        artifact = found
    settings = artifact.recipe["settings"]
    encoder, checkpoint = settings.get("encoder"), settings.get("checkpoint") or {}
    if not isinstance(encoder, dict):
        return EncodedBy(None, reason=f"stage {artifact.stage}, which made {vectors.column}, names no encoder")
    if encoder.get("type") not in _SPECS:
        return EncodedBy(
            None,
            reason=f"the encoder of {vectors.column} is {str(encoder.get('of', 'code'))[:80]}: user code is not run here",
        )
    try:
        spec = _SPECS[encoder["type"]](**{name: value for name, value in encoder.items() if name != "type"})
    except (TypeError, ValueError) as error:
        return EncodedBy(None, reason=f"the encoder of {vectors.column} is of another version: {error}"[:300])
    return EncodedBy(spec, str(checkpoint.get("content", "")) if isinstance(checkpoint, dict) else "")


def encode(vectors: VectorColumn, wanted: str | bytes) -> NDArray[np.float32]:
    """The vector of a text or picture file, from the encoder that made the column, which is loaded when first needed.

    Raises:
        Refused: the encoder cannot be loaded, or not encode this text or picture; nothing is downloaded.
    """
    made = made_by(vectors)
    if made.spec is None:
        raise Refused(made.reason)
    with one_at_a_time(_ENCODING, SECONDS, "another search has used the encoder"):
        try:
            encoder = _loaded(made.spec, _checkpoint(vectors.run, made.weights))
            if isinstance(wanted, str):
                return encoder.encode_texts([wanted])[0]
            return encoder.encode_prepared([encoder.prepare(wanted)])[0]
        except Reject as reject:
            raise Refused(f"this picture cannot be encoded: {reject}") from reject
        except ImportError as error:
            raise Refused(f"the encoder cannot be loaded: {lacking(error) or error}") from error
        except (ValueError, OSError) as error:
            raise Refused(printable(one_line(error, 400))) from error


@functools.lru_cache(maxsize=1)
def _loaded(spec: EncoderSpec, checkpoint: str) -> Encoder:
    # One picture per pass: with others next to it the last bits would differ from the column's, and a block would take longer.
    return load_encoder(dataclasses.replace(spec, block=1) if isinstance(spec, OpenClip) else spec, checkpoint=checkpoint)


def _checkpoint(run: ShownRun, weights: str) -> str:
    """Path of the checkpoint with these weights: one that the run's settings name, if it still has this content."""
    if not weights:
        return ""
    named = [*_named(run.record.config, "checkpoint")]
    for path in named:
        try:
            if fingerprint(path).content == weights:
                return path
        except (OSError, ValueError):
            continue
    raise Refused(f"the weights of the encoder are no longer at {', '.join(named) or 'any place that the settings name'}")


def _named(config: Any, name: str) -> Iterator[str]:
    """Local paths in settings with this name, at any depth."""
    inner: Sequence[Any] = list(config.values()) if isinstance(config, dict) else config if isinstance(config, list) else ()
    for each in inner:
        yield from _named(each, name)
    if isinstance(config, dict) and isinstance(path := config.get(name), str) and path and "://" not in path:
        yield path


def near_groups(vectors: VectorColumn, least: float) -> list[list[int]]:
    """Groups of rows with similar vectors, see ``docs/near_duplicates.md``: largest first, as row numbers.

    Raises:
        Refused: there are too many rows for an interactive comparison.
    """
    from ...curation.stages.near_duplicates import near_duplicates_by_vector

    rows = vectors.artifact.rows_view(vectors.run.store)
    if rows.num_rows**2 * vectors.width > _MOST_WORK:
        most = math.isqrt(_MOST_WORK // max(vectors.width, 1))
        raise Refused(
            f"{rows.num_rows:,} rows are too many to be compared here, {most:,} at most: add near_duplicates to the plan"
        )
    for _ in vectors.blocks():
        pass  # checks that every reference stays in the run
    groups: dict[str, list[int]] = {}
    first = 0
    try:
        for kept, _ in near_duplicates_by_vector(rows, min_cosine=least, column=vectors.column):
            for at, group in enumerate(kept["duplicate_group"].to_pylist(), first):
                if group is not None:
                    groups.setdefault(group, []).append(at)
            first += kept.num_rows
    except ImportError as error:
        raise Refused(f"comparing vectors: {lacking(error) or error}") from error
    except ValueError as error:
        raise Refused(one_line(error, 300)) from error
    return sorted(groups.values(), key=lambda each: (-len(each), each))


_MOST_WORK = 2 * 10**11
"""Most multiplications in a comparison of all rows with all, which take some seconds."""
