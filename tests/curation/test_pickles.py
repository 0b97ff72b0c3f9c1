"""Plain pickles with arrays: what is read, and what is refused. Texts alone are tested with vCLIMB's split files."""

from __future__ import annotations

import io
import pickle
import struct
from typing import Any

import numpy as np
import pytest
from benchwright.curation.pickles import UnsafePickle, load_plain
from benchwright.curation.png import stored_png
from PIL import Image


@pytest.mark.parametrize("protocol", range(2, 5))
def test_arrays_numbers_and_tuples(protocol: int) -> None:
    value = {
        b"data": np.arange(12, dtype=np.uint8).reshape(3, 4),
        b"deep": [(1, 2.0 > 1, None), {b"x": np.asfortranarray(np.eye(2, dtype=">f4"))}],
        b"labels": [0, 300, 70_000, -1],
    }
    found = load_plain(pickle.dumps(value, protocol=protocol), arrays=True)
    assert (found[b"data"] == value[b"data"]).all()
    assert (found[b"deep"][1][b"x"] == np.eye(2)).all()
    assert found[b"deep"][0] == (1, True, None)
    assert found[b"labels"] == value[b"labels"]


class Calls:
    def __init__(self, function: Any, *arguments: Any, state: Any = None) -> None:
        self.parts = (function, arguments) if state is None else (function, arguments, state)

    def __reduce__(self) -> Any:
        return self.parts


def _opened(*arguments: Any) -> bytes:
    return pickle.dumps(Calls(*arguments), protocol=2)


ARRAY = pickle.dumps(np.arange(300, dtype=np.uint8), protocol=2)
HEAD = b"\x80\x02cnumpy\ndtype\n"
HOSTILE = {
    "calls open": (_opened(open, "/tmp/never", "w"), r"names (_io|io)\.open"),
    "calls eval": (_opened(eval, "1"), r"names __builtin__\.eval"),
    "numpy's own functions": (b"\x80\x02cnumpy\nload\n(X\x01\x00\x00\x00atR.", r"names numpy\.load"),
    "dtype of objects": (pickle.dumps(np.asarray([{}, []], dtype=object), protocol=2), "calls dtype"),
    "dtype with fields": (pickle.dumps(np.zeros(2, dtype=[("a", "i4")]), protocol=2), "calls dtype"),
    "another shape": (ARRAY.replace(b"M,\x01", b"M-\x01"), "in 300 bytes"),
    "huge shape": (ARRAY.replace(b"M,\x01", b"J\xff\xff\xff\x7f"), "in 300 bytes"),
    "a function as a value": (HEAD + b".", "a dtype or function as a value"),
    "a function is changed": (HEAD + b"}X\x01\x00\x00\x00aK\x01sb.", "changes dtype"),
    "an array without values": (b"\x80\x02cnumpy.core.multiarray\n_reconstruct\n)R.", "an array without values"),
    "called twice": (HEAD + b"(X\x02\x00\x00\x00u1K\x00K\x01tR)R.", "damaged: TypeError"),
    "memo beyond": (b"\x80\x02K\x01r\xff\xff\xff\x7f.", "LONG_BINPUT 2147483647 at byte 4"),
    "cut off": (ARRAY[:-20], "damaged"),
    "nothing": (b"", "damaged"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_refused(name: str) -> None:
    data, message = HOSTILE[name]
    with pytest.raises(UnsafePickle, match=message):
        load_plain(data, arrays=True)


@pytest.mark.parametrize("protocol", range(2, 5))
def test_arrays_of_objects_with_fractions_and_scalars(protocol: int) -> None:
    shared = {"deep": [[[[np.eye(2, dtype=np.float32), (0.5, np.float64(2.5), np.int16(-7))]]]]}
    value = np.array([[shared, shared, None], [1.5, "text", b"bytes"]], dtype=object)
    found = load_plain(pickle.dumps(value, protocol=protocol), objects=True)
    assert (found.shape, found.dtype) == ((2, 3), np.dtype(object))
    [[[[matrix, numbers]]]] = found[0, 0]["deep"]
    assert (matrix == np.eye(2)).all()
    assert numbers == (0.5, 2.5, -7)
    assert (type(numbers[1]), type(numbers[2])) == (np.float64, np.int16)
    assert found[0, 1] is found[0, 0]
    assert found[0, 2] is None
    assert found[1].tolist() == [1.5, "text", b"bytes"]
    alone = np.empty((), dtype=object)
    alone[()] = {"a": 1.0}
    assert load_plain(pickle.dumps(alone, protocol=protocol), objects=True).item() == {"a": 1.0}


OBJECTS = pickle.dumps(np.array([{}, [], None], dtype=object), protocol=2)
HOSTILE_OBJECTS = {
    "calls open": (pickle.dumps(np.array([Calls(open, "/tmp/never", "w")], dtype=object), protocol=2), r"names (_io|io)\.open"),
    "more than there is": (OBJECTS.replace(b"K\x03\x85", b"K\x04\x85"), "in 3 values"),
    "bytes as pointers": (ARRAY.replace(b"u1", b"O8"), "not of numbers"),
    "a scalar of objects": (
        b"\x80\x02cnumpy.core.multiarray\nscalar\n(cnumpy\ndtype\n(X\x02\x00\x00\x00O8K\x00K\x01tR]tR.",
        "in 0 values",
    ),
    "contains itself": (b"\x80\x02]q\x00h\x00a.", "contains itself"),
    "texts for numbers": (b"\x80\x02F1.5x\n.", "damaged"),
}


@pytest.mark.parametrize("name", HOSTILE_OBJECTS)
def test_what_is_refused_of_objects(name: str) -> None:
    data, message = HOSTILE_OBJECTS[name]
    with pytest.raises(UnsafePickle, match=message):
        load_plain(data, objects=True)


@pytest.mark.parametrize("within", [list, tuple, lambda pair: {"a": pair[0], "b": pair[1]}])
def test_values_count_as_often_as_they_are_named(within: Any) -> None:
    value: Any = [0.5] * 4
    for _ in range(10):
        value = within([value, value])
    assert load_plain(pickle.dumps(value), objects=True) == value
    for _ in range(50):  # 2 to the 60 numbers: whoever goes through them, or prints them, never ends
        value = within([value, value])
    with pytest.raises(UnsafePickle, match="more than 16,777,216 values"):
        load_plain(pickle.dumps(value), objects=True)


def test_texts_named_often_are_read_without_going_through_them() -> None:
    value: Any = ["a"] * 10
    for _ in range(30):
        value = [value] * 10
    with pytest.raises(UnsafePickle, match="counts as often as it is named"):
        load_plain(pickle.dumps(value))


def test_a_key_of_tuples_within_tuples_is_refused_before_it_is_hashed() -> None:
    pairs = b"K\x01\x94" + b"".join((b"h" + bytes([number])) * 2 + b"\x86\x94" for number in range(60))
    with pytest.raises(UnsafePickle, match="tuples within tuples"):
        load_plain(b"\x80\x04}" + pairs + b"N" + b"s.", arrays=True)


def test_a_value_that_holds_itself_is_refused() -> None:
    value: list[Any] = []
    value.append(value)
    for asked in ({}, {"arrays": True}):
        with pytest.raises(UnsafePickle, match="contains itself"):
            load_plain(pickle.dumps(value), **asked)


def test_what_an_error_quotes_of_a_pickle_is_short() -> None:
    laughs = b"]\x94" + b"".join(b"](h" + bytes([n]) + b"h" + bytes([n]) + b"e\x94" for n in range(60))
    with pytest.raises(UnsafePickle, match="calls dtype with") as told:
        load_plain(b"\x80\x04" + laughs + b"cnumpy\ndtype\n(h\x3ch\x3ctR.", arrays=True)
    assert len(str(told.value)) < 200


def test_arrays_are_for_those_who_ask() -> None:
    with pytest.raises(UnsafePickle, match="GLOBAL at byte 2: only texts, lists and tables are read"):
        load_plain(ARRAY)


@pytest.mark.parametrize("shape", [(32, 32, 3), (1, 1), (200, 190, 3), (7, 5)])
def test_stored_png(shape: tuple[int, ...]) -> None:
    """The third is longer than one deflate block of 65,535 bytes."""
    pixels = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    data = stored_png(pixels)
    with Image.open(io.BytesIO(data)) as picture:
        picture.verify()
    assert (np.asarray(Image.open(io.BytesIO(data))) == pixels).all()
    assert struct.unpack(">II", data[16:24]) == (shape[1], shape[0])


@pytest.mark.parametrize("pixels", [np.zeros((2, 2, 4), np.uint8), np.zeros((2, 2)), np.zeros((0, 2), np.uint8)])
def test_what_is_no_picture(pixels: np.ndarray) -> None:
    with pytest.raises(ValueError, match="uint8"):
        stored_png(pixels)
