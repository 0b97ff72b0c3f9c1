"""Files that appear whole or not at all."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from benchwright.curation.local_files import Written, place_files, replacing, write_whole, writing


def test_a_file_takes_the_place_of_the_old_one_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file.bin"
    write_whole(path, b"first")
    with writing(path) as stream:
        stream.write(b"second")
        stream.flush()
        assert path.read_bytes() == b"first"
    assert path.read_bytes() == b"second"
    with replacing(path, sync=False) as beside:
        beside.write_bytes(b"third")
    assert path.read_bytes() == b"third"
    assert [each.name for each in path.parent.iterdir()] == ["file.bin"]


def test_an_error_leaves_the_old_one_and_nothing_beside(tmp_path: Path) -> None:
    path = tmp_path / "file.bin"
    write_whole(path, b"old")
    with pytest.raises(OSError, match=r"No space left.*file\.bin"), writing(path):
        raise OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(OSError, match=r"^the source went away$"), writing(path):
        raise OSError("the source went away")
    assert path.read_bytes() == b"old"
    assert [each.name for each in tmp_path.iterdir()] == ["file.bin"]


def test_files_take_their_places_later_and_in_order(tmp_path: Path) -> None:
    later: list[Written] = []
    for name in ("a", "b", "c"):
        with writing(tmp_path / name, later=later) as stream:
            stream.write(name.encode())
    assert not [each.name for each in tmp_path.iterdir() if not each.name.startswith(".")]
    later[1].beside.unlink()  # somebody took it away
    with pytest.raises(FileNotFoundError, match=r"No such file.*/b"):
        place_files(later)
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [("a", b"a")]
