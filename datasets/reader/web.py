"""A published dataset as a pipeline of the ``webdataset`` library; the index selects and labels the samples."""

from __future__ import annotations

import dataclasses
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
from fsspec.core import url_to_fs
from webdataset.compat import FluidInterface
from webdataset.filters import detshuffle
from webdataset.pipeline import DataPipeline
from webdataset.shardlists import SimpleShardList, split_by_node, split_by_worker
from webdataset.tariterators import base_plus_ext, group_by_keys, tar_file_expander

from ...curation.rng import rng
from ...curation.ustar import ShardError
from .decode import DECODERS, decode_member
from .index import DatasetIndex, ShardFiles


class WebPipeline(DataPipeline, FluidInterface):  # pyright: ignore[reportIncompatibleMethodOverride] (theirs)
    """A ``webdataset.DataPipeline`` that has the methods of ``webdataset.WebDataset``: ``map``, ``batched``, ``to_tuple``, ...

    >>> pipeline = web_dataset("out/dataset", columns=["class_name"]).to_tuple("__key__", "class_name").slice(2)
    >>> [name for _, name in pipeline]
    ['BACKGROUND', 'BACKGROUND']
    """


def web_dataset(
    index: DatasetIndex | str | Path,
    *,
    where: Mapping[str, Any] | None = None,
    extensions: Sequence[str] | None = None,
    columns: Sequence[str] = (),
    decode: Mapping[str, Callable[[bytes], Any]] = DECODERS,
    seed: int | None = None,
    epoch: int = 0,
    shuffle: int = 1000,
) -> WebPipeline:
    """The samples of a dataset as a ``webdataset`` pipeline, to which stages can be added: ``.map(...).batched(64)``.

    Shards without a selected sample are not opened; the others are read completely, so ``ShardDataset`` is faster for few
    samples per shard. Nodes and DataLoader workers take whole shards, as in ``webdataset``, so their numbers of samples
    differ; ``ShardDataset`` splits exactly. Samples are those of ``ShardDataset`` with an additional ``__url__``.

    Args:
        index: the rows; or the dataset's folder or URL.
        where: rows to keep, as for ``DatasetIndex.open``: ``{"iid_seed0": "train", "bucket": [3, 4]}``.
        extensions: members to read; None for all.
        columns: columns of the index to add to each sample.
        decode: decoder for each extension or last part of an extension; with ``{}`` all members stay bytes.
        seed: seed for shuffling the shards and the samples; None for the order of the index.
        epoch: epoch of the first iteration; each further iteration is the next epoch. DataLoader's workers start from it
            again at each iteration, unless they are persistent.
        shuffle: size of the buffer in which samples are shuffled, if there is a seed.

    Raises:
        ShardError: a shard is missing or broken, or lacks a sample that the index has.
        ValueError: ``where`` names a column that does not exist or matches no row, or a column is unknown.

    >>> train = web_dataset("out/dataset", where={"iid_seed0": "train", "bucket": 3}, columns=["label"], seed=0)
    >>> sample = next(iter(train))
    >>> sorted(sample), sample["embedding.npy"].shape
    (['__key__', '__url__', 'bmp', 'embedding.npy', 'json', 'label'], (11,))
    """
    index = (index if isinstance(index, DatasetIndex) else DatasetIndex.open(index)).select(where or {})
    index.check()
    if unknown := sorted({*columns} - {*index.table.column_names}):
        raise ValueError(f"{index.url}: no columns {unknown}, there are {index.table.column_names}")
    if extensions is not None and not extensions:
        raise ValueError("extensions is empty: name the members to read, or leave it out for all")
    shards = SimpleShardList(pc.unique(index.table["shard"]).to_pylist())
    # webdataset adds seed and epoch, so that epoch 1 of seed 0 would equal epoch 0 of seed 1.
    word = None if seed is None else int(rng(seed, "reader.web").integers(1 << 62))
    by_shard, by_sample = (
        None if word is None else detshuffle(size, size, seed=word, epoch=epoch - 1)  # each iteration is one more
        for size in (len(shards), shuffle)
    )
    members = None if extensions is None else frozenset(extensions)
    samples = _Samples(index, members, tuple(columns), decode)
    return WebPipeline(shards, by_shard, split_by_node, split_by_worker, samples, by_sample)


@dataclasses.dataclass(frozen=True)
class _Samples:
    """The stage that opens shards and yields their samples."""

    index: DatasetIndex
    extensions: frozenset[str] | None
    columns: tuple[str, ...]
    decode: Mapping[str, Callable[[bytes], Any]]

    def __call__(self, shards: Iterable[Mapping[str, str]]) -> Iterator[dict[str, Any]]:
        files = ShardFiles(self.index.url)
        fs, root = url_to_fs(self.index.url)
        for shard in (each["url"] for each in shards):
            table = self.index.table.filter(pc.equal(self.index.table["shard"], shard))
            rows = {row["key"]: row for row in table.select([*dict.fromkeys(("key", *self.columns))]).to_pylist()}
            place = files.place(shard)
            try:
                with fs.open(f"{root.rstrip('/')}/{shard}.tar", "rb") as stream:
                    yield from self._read(stream, place, rows)
            except (tarfile.TarError, EOFError) as error:
                raise ShardError(f"{place}: {error.args[0]}") from error
            if rows:
                raise ShardError(f"{place}: the shard has no sample {next(iter(rows))!r}, which the index has in it")

    def _read(self, stream: Any, place: str, rows: dict[str, dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """Samples of a shard; removes their rows from ``rows``."""

        def wanted(name: str) -> bool:
            key, extension = base_plus_ext(name)
            return key in rows and (self.extensions is None or extension in self.extensions)

        files = tar_file_expander([{"url": place, "stream": stream}], select_files=wanted)
        for sample in group_by_keys(files):
            key = sample["__key__"]
            row = rows.pop(key)
            for extension in sample.keys() - {"__key__", "__url__"}:
                sample[extension] = decode_member(extension, sample[extension], self.decode, key=key, place=place)
            if missing := sorted((self.extensions or set()) - sample.keys()):
                raise ShardError(f"{place}: sample {key!r} has no member {missing}")
            if taken := [name for name in self.columns if name in sample]:
                raise ValueError(f"{place}: sample {key!r} has a member named {taken[0]!r}, as the column is")
            yield sample | {name: row[name] for name in self.columns}
