"""Samples of a published dataset for torch: streamed in an order independent of the number of workers, or read by row.

The order of an epoch is a function of (seed, epoch, place in the index). It is cut into global steps of
``world_size * batch_size`` samples; node r of R takes the r-th batch of each step, and DataLoader worker w of W on that
node takes the node's steps w, w + W, ... . DataLoader asks its workers in turn, so batches arrive in the same order for
every number of workers, and what all nodes have consumed after s steps is a prefix of the order: one number resumes an epoch.
"""

from __future__ import annotations

import itertools
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from ...curation.ustar import ShardError
from .decode import DECODERS
from .index import DatasetIndex
from .samples import Sample, Samples


def global_steps(
    samples: int, *, start: int, batch_size: int, rank: int, world_size: int, drop_last: bool
) -> Iterator[tuple[int, int]]:
    """Ranges [begin, end) of an epoch's order that one node takes, one per batch.

    Every sample from ``start`` on belongs to exactly one node. If the last step has fewer than
    ``world_size * batch_size`` samples, the nodes share them evenly: batch sizes differ by at most one, and a node gets none
    only if there are fewer samples than nodes. Except in that case all nodes have the same number of batches.
    ``drop_last`` drops the last incomplete step on all nodes; samples are lost in no other way.

    >>> [list(global_steps(10, start=0, batch_size=2, rank=rank, world_size=2, drop_last=False)) for rank in (0, 1)]
    [[(0, 2), (4, 6), (8, 9)], [(2, 4), (6, 8), (9, 10)]]
    """
    stride = batch_size * world_size
    full, rest = divmod(samples - start, stride)
    for step in range(full):
        begin = start + step * stride + rank * batch_size
        yield begin, begin + batch_size
    share, extra = divmod(0 if drop_last else rest, world_size)
    begin = start + full * stride + rank * share + min(rank, extra)
    if share + (rank < extra):
        yield begin, begin + share + (rank < extra)


class ShardDataset(IterableDataset[Sample]):
    """Decoded samples: iterate over an epoch in its order, or access a row with ``dataset[i]``.

    A sample is a dict: ``__key__``, each member by its extension (decoded), and the ``columns`` of the index.
    To use DataLoader's own samplers, wrap the dataset: ``torch.utils.data.Subset(dataset, range(n))``.

    Args:
        index: the rows; or the dataset's folder or URL, for all rows.
        extensions: members to decode; None for all.
        columns: columns of the index to add to each sample.
        decode: decoder for each extension or last part of an extension; with ``{}`` all members stay bytes.
        transform: called with each sample, in the worker; its result replaces the sample.
        seed: seed of the shuffle, which differs in each epoch; None for the order of the index.
        batch_size: batch size of the DataLoader. The order of batches is the same for any number of workers only if the two
            agree, which ``loader`` ensures.
        node: (rank, world size).
        drop_last: drop the last incomplete step on all nodes (see ``global_steps``).

    Raises:
        ShardError: a shard that the rows name is missing or too short.
        ValueError: an unknown column, a column with the name of a member, or a rank outside the world.

    >>> dataset = ShardDataset("out/dataset", extensions=["embedding.npy"], columns=["class_name"], seed=0)
    >>> sample = dataset[0]
    >>> sorted(sample), sample["embedding.npy"].dtype
    (['__key__', 'class_name', 'embedding.npy'], dtype('float32'))
    """

    def __init__(
        self,
        index: DatasetIndex | str | Path,
        *,
        extensions: Sequence[str] | None = None,
        columns: Sequence[str] = (),
        decode: Mapping[str, Callable[[bytes], Any]] = DECODERS,
        transform: Callable[[Sample], Any] | None = None,
        seed: int | None = None,
        batch_size: int = 1,
        node: tuple[int, int] = (0, 1),
        drop_last: bool = False,
    ) -> None:
        self._stored = Samples(index, extensions=extensions, columns=columns, decode=decode)
        self.index = self._stored.index
        if not 0 <= node[0] < node[1] or batch_size < 1:
            raise ValueError(f"node {node} must be (rank, world size) with 0 <= rank < size, batch_size {batch_size} >= 1")
        self.seed = seed
        self.batch_size = batch_size
        self.node = node
        self.drop_last = drop_last
        self._transform = transform
        # (epoch, start) in shared memory: persistent workers see where the next epoch begins.
        self._cursor = torch.zeros(2, dtype=torch.int64).share_memory_()

    def set_epoch(self, epoch: int, consumed: int = 0) -> None:
        """Begin the next iteration in ``epoch``, after the first ``consumed`` samples of its order (of all nodes together).

        Raises ``ValueError`` if either is out of its range.

        >>> dataset = ShardDataset("out/dataset", seed=0)
        >>> dataset.set_epoch(3, consumed=200)
        >>> dataset.position, len(dataset)
        ((3, 200), 10)
        """
        if epoch < 0 or not 0 <= consumed <= len(self.index):
            raise ValueError(f"epoch {epoch} must be 0 or more, consumed {consumed} from 0 to {len(self.index)}")
        self._cursor[0], self._cursor[1] = epoch, consumed

    @property
    def position(self) -> tuple[int, int]:
        """(epoch, consumed) at which the next iteration begins."""
        return int(self._cursor[0]), int(self._cursor[1])

    def __len__(self) -> int:
        """Samples that this node will see in the rest of the epoch."""
        return sum(end - begin for begin, end in self._steps(self.position[1]))

    def _steps(self, start: int) -> Iterator[tuple[int, int]]:
        rank, world_size = self.node
        return global_steps(
            len(self.index),
            start=start,
            batch_size=self.batch_size,
            rank=rank,
            world_size=world_size,
            drop_last=self.drop_last,
        )

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        first, count = (worker.id, worker.num_workers) if worker else (0, 1)
        epoch, start = self.position
        order = self.index.order(seed=self.seed, epoch=epoch)
        steps = itertools.islice(self._steps(start), first, None, count)
        return itertools.chain.from_iterable(self._samples(order[begin:end]) for begin, end in steps)

    def __getitem__(self, row: int) -> Any:
        return next(self._samples(self._stored.places([row])))

    def __getitems__(self, rows: Sequence[int]) -> list[Any]:
        """Several samples at once; ``torch.utils.data.Subset`` reads its batches this way."""
        return list(self._samples(self._stored.places(rows)))

    def _samples(self, rows: np.ndarray) -> Iterator[Any]:
        samples = self._stored.read(rows)
        return samples if self._transform is None else map(self._transform, samples)

    def loader(self, **options: Any) -> ShardLoader:
        """A loader over this dataset that counts what it delivers.

        Args:
            options: options of ``torch.utils.data.DataLoader`` (``num_workers``, ``collate_fn``, ``pin_memory``, ...), except
                ``batch_size``, ``drop_last``, ``shuffle`` and samplers, which the dataset determines, and ``in_order``:
                batches out of order could not be counted.

        Raises ``ValueError`` for an option that the dataset determines.

        >>> dataset = ShardDataset("out/dataset", extensions=["embedding.npy"], seed=0, batch_size=64)
        >>> [len(batch) for batch in dataset.loader(collate_fn=list)]
        [64, 64, 64, 18]
        """
        return ShardLoader(self, options)


class ShardLoader(Iterable[Any]):
    """Batches of a ``ShardDataset``, epoch after epoch, with a state that fits in a checkpoint.

    Its position is (epoch, samples consumed by all nodes). Iterating continues from the position to the end of the epoch and
    leaves it at the start of the next epoch; after a ``break`` or ``load_state_dict`` the rest of the epoch follows.

    >>> loader = ShardDataset("out/dataset", extensions=[], seed=0, batch_size=64).loader(collate_fn=list)
    >>> first = next(iter(loader))
    >>> loader.state_dict()["consumed"]
    64
    """

    def __init__(self, dataset: ShardDataset, options: Mapping[str, Any]) -> None:
        settled = sorted({"batch_size", "drop_last", "shuffle", "sampler", "batch_sampler", "in_order"} & set(options))
        if settled:
            raise ValueError(
                f"the loader's {settled} are settled by ShardDataset (batch_size, drop_last, seed, node; always in order)"
            )
        self.dataset = dataset
        self.epoch, self._consumed = dataset.position
        self._loader: DataLoader[Any] = DataLoader(dataset, batch_size=dataset.batch_size, **options)

    def __len__(self) -> int:
        """Batches that this node will see in the next iteration."""
        # Not from the dataset's cursor: workers that start late read it while the epoch runs.
        _, start = self._place()
        return sum(1 for _ in self.dataset._steps(start))  # pyright: ignore[reportPrivateUsage] (one module)

    def _place(self) -> tuple[int, int]:
        """Epoch and samples consumed; after the last sample of an epoch, the start of the next."""
        dataset = self.dataset
        left = len(dataset.index) - self._consumed
        done = left == 0 or (dataset.drop_last and left < dataset.batch_size * dataset.node[1])
        # An epoch without any batch from its start counts all the same: otherwise it would never end.
        return (self.epoch + 1, 0) if done and self._consumed else (self.epoch, self._consumed)

    def __iter__(self) -> Iterator[Any]:
        dataset = self.dataset
        self.epoch, self._consumed = self._place()
        start = self._consumed
        dataset.set_epoch(self.epoch, start)
        stride = dataset.batch_size * dataset.node[1]
        batches, failure = iter(self._loader), None
        try:
            for step in itertools.count(1):
                try:
                    batch = next(batches, None)
                except Exception as error:
                    failure = error
                    if self._loader.num_workers:  # torch's frames hold the error, and torch's iterator
                        traceback.clear_frames(error.__traceback__)
                    break
                if batch is None:
                    break
                self._consumed = min(start + step * stride, len(dataset.index))
                yield batch
        finally:
            # Ends the workers now. If something held torch's iterator until garbage is collected, their queues would be
            # collected first, and five seconds be waited for each of them.
            del batches
        if isinstance(failure, ShardError):
            # The message of a worker's error is its traceback: the last line is the original message.
            raise ShardError(str(failure).strip().rsplit("ShardError: ", 1)[-1])
        if failure is not None:
            raise failure
        self.epoch, self._consumed = self.epoch + 1, 0

    def state_dict(self) -> dict[str, Any]:
        """Position of the loader as JSON values: epoch, samples consumed by all nodes, and what identifies the order.

        The state is the same on all nodes that have done the same steps, and can be loaded with another number of nodes or
        workers, or another batch size.

        >>> import json
        >>> loader = ShardDataset("out/dataset", seed=0, batch_size=64).loader(collate_fn=list)
        >>> {name: value for name, value in loader.state_dict().items() if name != "index"}
        {'epoch': 0, 'consumed': 0, 'seed': 0, 'rows': 210}
        """
        dataset = self.dataset
        epoch, consumed = self._place()
        return {
            "epoch": epoch,
            "consumed": consumed,
            "seed": dataset.seed,
            "rows": len(dataset.index),
            "index": dataset.index.fingerprint(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from the position in ``state``.

        Raises:
            ValueError: the state belongs to another order: other rows, or another seed.
        """
        dataset = self.dataset
        for name, own in (("seed", dataset.seed), ("rows", len(dataset.index)), ("index", dataset.index.fingerprint())):
            if state[name] != own:
                raise ValueError(f"the state has {name} {state[name]!r}, this dataset {own!r}: the orders differ")
        dataset.set_epoch(int(state["epoch"]), int(state["consumed"]))
        self.epoch, self._consumed = dataset.position
