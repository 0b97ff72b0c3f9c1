"""Orders that are not sorted in memory at once, beside numpy's."""

from __future__ import annotations

import gc
import io
import sys
import tempfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from benchwright.curation.stages import external_sort, spill
from benchwright.curation.stages.external_sort import (
    NO_NUMBER,
    RowOrder,
    by_row,
    nowhere,
    numbers_of_digits,
    places_of,
    sorted_by_numbers,
)
from benchwright.curation.stages.spill import SpillableArray, SpilledBatches, SpilledNumbers


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name, value in (
        (external_sort, "HELD_NUMBERS", 64),
        (external_sort, "HELD_ROWS", 64),
        (external_sort, "_DRAWN", 4),
        (external_sort, "_PIECE", 8),
        (spill, "_BLOCK", 70),
        (spill, "HELD_BYTES", 200),
    ):
        monkeypatch.setattr(module, name, value)


DRAWS: dict[str, Callable[[np.random.Generator], np.ndarray]] = {
    "distinct": lambda draw: draw.permutation(1_003),
    "few": lambda draw: draw.integers(0, 5, 1_003),
    "equal": lambda _: np.full(1_003, 7),
    "wide": lambda draw: draw.integers(-(2**63) + 1, 2**63 - 1, 1_003),
    "without": lambda draw: np.where(draw.random(1_003) < 0.4, NO_NUMBER, draw.integers(0, 90, 1_003)),
    "none": lambda _: np.full(1_003, NO_NUMBER),
    "empty": lambda _: np.empty(0, dtype=np.int64),
}


@pytest.mark.parametrize("drawn", DRAWS)
@pytest.mark.parametrize("held", ["in memory", "outside"])
def test_numbers_in_order(drawn: str, held: str, request: pytest.FixtureRequest) -> None:
    if held == "outside":
        request.getfixturevalue("small")
    numbers = DRAWS[drawn](np.random.default_rng(3)).astype(np.int64)
    expected = np.argsort(numbers, kind="stable")
    expected = expected[numbers[expected] != NO_NUMBER]
    stretches = list(sorted_by_numbers(SpillableArray.of(numbers), absent=NO_NUMBER))
    assert np.concatenate(stretches).tolist() == expected.tolist()
    if held == "outside" and len(expected) > 64:
        assert max(map(len, stretches)) <= 64
    place = places_of(stretches, len(numbers))[:]
    assert place[expected].tolist() == list(range(len(expected)))
    assert (place == nowhere(place.dtype)).sum() == len(numbers) - len(expected)
    order = RowOrder(stretches, len(numbers))
    assert len(order) == len(expected)
    assert order.rows().tolist() == expected.tolist()
    assert order.places()[:].tolist() == place.tolist()


@pytest.mark.usefixtures("small")
def test_values_by_row() -> None:
    draw = np.random.default_rng(5)
    rows, values = draw.permutation(1_003)[:700], draw.random(700)
    expected = np.full(1_003, -1.0)
    expected[rows] = values
    pieces = list(zip(np.array_split(rows, 9), np.array_split(values, 9), strict=True))
    assert by_row(pieces, 1_003, np.float64, missing=-1)[:].tolist() == expected.tolist()


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("dtype", [np.uint8, np.int64, np.float64, np.bool_])
def test_a_spilled_array_reads_as_one_in_memory(dtype: type) -> None:
    draw = np.random.default_rng(7)
    values, array = draw.integers(0, 2, 0).astype(dtype), SpillableArray(dtype)
    for count in (3, 0, 150, 400, 1):
        some = draw.integers(0, 200, count).astype(dtype)
        array.append(some)
        values = np.concatenate([values, some])
        assert len(array) == len(values)
        assert array[:].tolist() == values.tolist()
        assert array[2:-1].tolist() == values[2:-1].tolist()
    assert np.concatenate([block for _, block in array.blocks()]).tolist() == values.tolist()
    indices = draw.integers(0, len(values), 300)
    assert array.take(indices).tolist() == values[indices].tolist()
    assert array.take(indices[:0]).tolist() == []
    with pytest.raises(IndexError, match="step 2"):
        array[::2]
    for index in (-1, len(values)):
        with pytest.raises(IndexError, match=f"index {index} of an array of {len(values)}"):
            array.take(np.array([0, index]))


@pytest.mark.usefixtures("small")
def test_digits_sort_as_their_texts() -> None:
    texts = [str(number) for number in np.random.default_rng(1).integers(0, 10**12, 300)] + ["0", "00", "1", "10", None]
    tables = [pa.table({"key": pa.array(part, pa.string())}) for part in (texts[:100], [], texts[100:])]
    numbers = numbers_of_digits(lambda: tables, "key")
    assert numbers is not None
    order = np.concatenate(list(sorted_by_numbers(numbers, absent=NO_NUMBER)))
    assert [texts[row] for row in order] == sorted(text for text in texts if text is not None)
    assert numbers_of_digits(lambda: [*tables, pa.table({"key": ["1x"]})], "key") is None


def test_memory_does_not_grow_with_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in ((external_sort, "HELD_NUMBERS"), (spill, "_BLOCK"), (spill, "HELD_BYTES")):
        monkeypatch.setattr(module, name, 1 << 15)

    def most(count: int) -> int:
        numbers, draw = SpillableArray(np.int64), np.random.default_rng(2)
        for _ in range(count >> 15):
            numbers.append(draw.integers(0, 1 << 40, 1 << 15))
        tracemalloc.start()
        places_of(sorted_by_numbers(numbers), count)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak

    most(1 << 16)
    assert most(1 << 20) - most(1 << 18) < (1 << 20) - (1 << 18)  # below a byte for each row


@pytest.mark.usefixtures("small")
def test_dictionaries_are_spilled_with_their_batches() -> None:
    texts = [["b", "a", None, "b"], ["c", "c", "b"], [None, None]]
    batches = [
        pa.record_batch({"number": range(len(each)), "text": pa.array(each, pa.string()).dictionary_encode()}) for each in texts
    ]
    spilled = SpilledBatches(batches[0].schema)
    for batch in batches:
        spilled.add(batch, np.array([0, 1, 1, batch.num_rows]))
    found = [spilled.take(number) for number in range(3)]
    assert {table.schema for table in found} == {batches[0].schema}
    assert [table["text"].to_pylist() for table in found] == [["b", "c", None], [], ["a", None, "b", "c", "b", None]]
    assert found[2]["number"].to_pylist() == [1, 2, 3, 1, 2, 1]
    assert found[2].combine_chunks()["text"].cast(pa.string()).to_pylist() == ["a", None, "b", "c", "b", None]


@pytest.mark.usefixtures("small")
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """It names the folder, and nothing else is printed when the file is let go."""
    printed: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", printed.append)
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda *_, **__: io.BufferedRandom(io.FileIO("/dev/full", "r+")))
    numbers = np.arange(100_000)
    batch = pa.record_batch({"number": numbers})
    for fill in (
        lambda: SpillableArray(np.int64, scratch="room").append(numbers),
        lambda: SpilledNumbers(2, scratch="room").add(numbers % 2, [numbers] * 2),
        lambda: SpilledBatches(batch.schema, scratch="room").add(batch, np.array([0, batch.num_rows])),
    ):
        with pytest.raises(OSError, match="No space left on device: 'room'"):
            fill()
    gc.collect()
    assert not printed
