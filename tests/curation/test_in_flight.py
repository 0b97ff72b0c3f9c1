"""Pictures that are decoded side by side take no more memory than the room that there is for them."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import threading

import numpy as np
import pytest
from benchwright.curation.stages.in_flight import Room
from PIL import Image

PEAKS = """
import json, multiprocessing, resource, sys
from concurrent.futures import ThreadPoolExecutor
import numpy as np
from benchwright.curation.encoders.preprocess import Crop, prepare
from benchwright.curation.stages import decode, in_flight
from benchwright.curation.stages.decode import check_pixels, decode_rgb, read_header

decode.ROOM = in_flight.Room(in_flight.IN_FLIGHT // 2)  # as for a picture of twice as many pixels
data = open(sys.argv[1], "rb").read()
calls = {
    "check": lambda _: check_pixels(data, read_header(data)),
    "decode": lambda _: decode_rgb(data).shape,
    "prepare": lambda _: prepare(data, Crop(32, 32)).shape,
}
prepare(np.zeros((64, 64, 3), np.uint8), Crop(32, 32))  # loads what it needs

def peak(call):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(calls[call], range(3)))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before

with multiprocessing.get_context("fork").Pool(1, maxtasksperchild=1) as pool:
    print(json.dumps(dict(zip(calls, pool.map(peak, calls, chunksize=1)))))
"""


@pytest.fixture(scope="module")
def peaks_kb(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """What three threads take for a WebP file of 12.5 megapixels, 280 MB each: for each call, in a process of its own."""
    path = tmp_path_factory.mktemp("large") / "large.webp"
    Image.new("RGB", (3540, 3540), (200, 10, 10)).save(path, "WEBP", lossless=True, quality=0, method=0)
    command = [sys.executable, "-P", "-c", PEAKS, str(path)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


@pytest.mark.parametrize(("call", "alone_mb"), [("check", 205), ("decode", 280), ("prepare", 280)])
def test_memory_does_not_grow_with_the_threads(call: str, alone_mb: int, peaks_kb: dict[str, int]) -> None:
    """Each thread took as much memory as one alone: 4.7 GB with two of them at the limit of pixels."""
    assert peaks_kb[call] / 1e3 < 2 * alone_mb


def test_what_fits_together_goes_together_and_a_large_one_alone() -> None:
    room, together = Room(10), threading.Barrier(2, timeout=30)
    held: list[int] = []
    most: list[int] = []
    lock = threading.Lock()

    def take(count: int, *, meet: bool) -> None:
        with room.taken(count):
            if meet:
                together.wait()  # breaks unless both are in
            with lock:
                held.append(count)
                most.append(sum(held))
            with room.taken(count):  # waits for nobody: not for itself either
                pass
            with lock:
                held.remove(count)

    for counts, meet in (([5, 5], True), ([25, 25, 3, 8], False)):
        threads = [threading.Thread(target=take, args=(count,), kwargs={"meet": meet}) for count in counts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
            assert not thread.is_alive()
    assert all(total <= 10 or total == 25 for total in most)


def test_room_comes_back_after_an_error() -> None:
    room = Room(1)
    for _ in range(3):
        with pytest.raises(ValueError, match="no picture"), room.taken(100):
            raise ValueError("no picture")


def test_pixels_do_not_depend_on_the_room(monkeypatch: pytest.MonkeyPatch) -> None:
    from benchwright.curation.stages import decode

    held = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 60, 3), dtype=np.uint8)).save(held, "PNG")
    roomy = decode.decode_rgb(held.getvalue())
    monkeypatch.setattr(decode, "ROOM", Room(1))
    assert (decode.decode_rgb(held.getvalue()) == roomy).all()
