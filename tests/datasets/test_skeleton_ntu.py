"""NTU RGB+D's names and text, and the cleaning of bodies: hand-made files, a plain reader, damage of every kind."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
from benchwright.curation.rows import Reject, Rejected
from benchwright.datasets.skeleton.bodies import PRESETS, BodyRule, Noise, sequence_of_bodies
from benchwright.datasets.skeleton.facts import facts
from benchwright.datasets.skeleton.ntu import list_ntu, list_ntu_names, listed_by_name, read_missing
from benchwright.datasets.skeleton.ntu_text import parse_skeleton

from .skeleton_files import one_body, read_plainly, skeleton_text

DRAWN = np.random.default_rng(0)
V = 5


def reason(data: bytes, joints: int = V) -> str:
    with pytest.raises(Reject) as caught:
        parse_skeleton(data, joints=joints)
    assert caught.value.detail
    return caught.value.reason


def body(scale: float = 1.0) -> np.ndarray:
    return DRAWN.normal(size=(V, 3)) * scale


# ----------------------------------------------------------------------------------------------------------------- text


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_text_is_read_as_by_a_plain_reader(newline: str) -> None:
    # Identities that a double would take for one; frames with none, one and two bodies; numbers of all sizes.
    first, second = 72057594037931691, 72057594037931692
    frames = [[(first, body())], [], [(second, body(1e-6)), (first, body(1e5))], [(first, body()), (second, body(1e-20))]]
    data = skeleton_text(frames, newline=newline)
    parsed, plain = parse_skeleton(data, joints=V), read_plainly(data)
    assert parsed.frames == 4
    assert parsed.frame.tolist() == [0, 2, 2, 3, 3]
    assert parsed.place.tolist() == [0, 0, 1, 0, 1]
    assert parsed.body.tolist() == [0, 1, 0, 0, 1]
    # To the bit, for these are the numbers that Python's float gives.
    assert np.array_equal(parsed.joints, np.stack([joints for bodies in plain for _, joints in bodies]))


def test_long_numbers_and_a_last_line_without_its_end() -> None:
    joints = DRAWN.normal(size=(3, V, 3))
    data = one_body(joints).rstrip()
    long = data.replace(b" 277.4", b"0000000000000000000 277.4")  # more digits than the first window has room for
    assert parse_skeleton(data, joints=V).joints.shape == (3, V, 3)
    assert np.array_equal(parse_skeleton(long, joints=V).joints, np.stack([bodies[0][1] for bodies in read_plainly(long)]))


def test_damaged_text_is_turned_away_with_its_reason() -> None:
    good = one_body(DRAWN.normal(size=(4, V, 3)))
    lines = good.split(b"\r\n")

    def changed(line: int, text: bytes) -> bytes:
        return b"\r\n".join([*lines[:line], text, *lines[line + 1 :]])

    assert reason(b"") == reason(b" \r\n\n") == "empty"
    assert reason(b"\x89PNG\r\n\x1a\n\0\0") == reason(good + b"\0") == "not_text"
    assert reason(b"0\n") == "no_frames"
    assert reason(good[:-200]) == reason(b"3\n") == reason(changed(0, b"9")) == "truncated"
    assert reason(good + b"1\r\n") == reason(changed(0, b"3")) == "trailing_lines"
    assert reason(changed(3, b"6")) == reason(good, joints=25) == "wrong_joint_count"
    for text in (b"x", b"-1", b"1.5", b"", b"1 2"):
        assert reason(changed(1, text)) == "bad_count"
    for text in (b"1 2 x 4", b"1 2", b"", b"0x10 1 1 1", b"1_0 1 1 1"):
        assert reason(changed(5, text)) == "not_a_number"
    for text in (b"1 nan 3 4", b"1 2 -inf 4", b"NaN 1 1 1", b"1e999 1 1 1"):
        assert reason(changed(5, text)) == "not_finite"
    # Only x, y, z are read: what the sensor could not place in the picture is no matter.
    assert parse_skeleton(changed(5, b"1 2 3 nan -inf 4"), joints=V).joints[0, 1].tolist() == [1, 2, 3]


def test_numbers_that_claim_much_cost_nothing() -> None:
    begun = time.process_time()
    for text in (b"1000000000\n", b"999999999\n0\n", b"1\n999999999\n", b"1\n1\n1 2\n999999999\n", b"9" * 10_000 + b"\n1\n"):
        assert reason(text) in ("truncated", "wrong_joint_count", "bad_count")
    # One body, and then nothing for 200,000 frames: 120 MB if it were believed.
    data = b"200000\n1\n" + one_body(np.ones((1, V, 3)), 1)[6:] + b"0\n" * 199_999
    with pytest.raises(Reject, match="too_long"):
        cleaned(data, "st_gcn")
    assert time.process_time() - begun < 5


def test_any_damage_is_a_reject_and_nothing_else() -> None:
    good = skeleton_text([[(7, body()), (8, body())], [(7, body())]])
    turned = 0
    for cut in range(0, len(good), 7):
        mutated = bytearray(good)
        mutated[cut] = int(DRAWN.integers(0, 256))
        for data in (good[:cut], bytes(mutated), good[:cut] + good[cut + 3 :]):
            try:
                assert parse_skeleton(data, joints=V).joints.shape[1:] == (V, 3)
            except Reject:
                turned += 1
    assert turned > len(good) // 10


# --------------------------------------------------------------------------------------------------------------- bodies


def track(length: int, level: float, moving: float = 0.0) -> np.ndarray:
    """A tall body (x narrower than y) at a level of z, moving in z."""
    pose = np.column_stack([np.linspace(0, 0.2, V), np.linspace(0, 1, V), np.zeros(V)])
    return pose + [[[0, 0, level]]] + np.asarray([0, 0, 1]) * (moving * np.arange(length))[:, None, None]


def parsed(*bodies: tuple[int, int, np.ndarray], frames: int) -> bytes:
    """A file of tracks (identity, first frame, joints (T, V, 3))."""
    listed = [[(i, j[t - first]) for i, first, j in bodies if first <= t < first + len(j)] for t in range(frames)]
    return skeleton_text(listed)


def cleaned(data: bytes, rule: str | BodyRule):
    return sequence_of_bodies(parse_skeleton(data, joints=V), PRESETS[rule] if isinstance(rule, str) else rule)


def test_st_gcn_takes_bodies_by_their_place_in_the_frame() -> None:
    """When the first body is lost the second one moves to its place, as in the released code; empty frames stay."""
    data = parsed((1, 0, track(2, 1.0)), (2, 0, track(4, 2.0)), (3, 0, track(1, 3.0)), frames=6)
    found = cleaned(data, "st_gcn")
    assert found.joints.shape == (6, 2, V, 3)
    assert found.joints[:, 0, 0, 2].tolist() == [1, 1, 2, 2, 0, 0]
    assert found.joints[:, 1, 0, 2].tolist() == [2, 2, 0, 0, 0, 0]
    assert found.present.tolist() == [[True, True]] * 2 + [[True, False]] * 2 + [[False, False]] * 2


def test_longest_and_most_moving_follow_a_body_through_the_frames() -> None:
    data = parsed((1, 0, track(2, 1.0, 0.5)), (2, 0, track(5, 2.0)), frames=6)
    longest, moving = cleaned(data, "longest"), cleaned(data, "most_moving")
    assert longest.joints[:, 0, 0, 2].tolist() == [2, 2, 2, 2, 2, 0]
    assert moving.joints[:, 0, 0, 2].tolist() == [1, 1.5, 0, 0, 0, 0]
    assert cleaned(data, BodyRule("identity", 9, "longest", 1)).joints.shape[1] == 1


def test_two_s_agcn_orders_places_by_their_spread() -> None:
    data = parsed((1, 0, track(4, 1.0)), (2, 0, track(4, 5.0, 1.0)), frames=4)
    assert cleaned(data, "two_s_agcn").joints[:, 0, 0, 2].tolist() == [5, 6, 7, 8]


def test_ctr_gcn_leaves_noise_out_and_joins_tracks() -> None:
    """By hand from the released code: tracks of 11 frames or fewer go, and wide ones; the rest by motion, joined in time."""
    wide = track(14, 9.0, 0.9)
    wide[..., 0] *= 10  # x 2.0 wide, y 1.0 high
    data = parsed((1, 0, track(12, 1.0)), (2, 14, track(12, 2.0, 0.3)), (3, 0, track(11, 3.0, 2.0)), (4, 5, wide), frames=30)
    found = cleaned(data, "ctr_gcn")
    # Body 4 is noise in all its frames, body 3 too short. Frames 26 to 29 are empty; of the others body 4's are zeros then.
    assert found.joints.shape == (24, 1, V, 3)
    assert found.joints[:12, 0, 0, 2].tolist() == [1] * 12
    assert np.allclose(found.joints[12:, 0, 0, 2], 2 + 0.3 * np.arange(12), atol=1e-6)


def test_ctr_gcn_gives_what_overlaps_to_a_second_body() -> None:
    data = parsed((1, 0, track(15, 1.0, 0.5)), (2, 3, track(13, 2.0, 0.1)), (3, 15, track(12, 3.0, 0.05)), frames=27)
    found = cleaned(data, "ctr_gcn")
    assert found.joints.shape[:2] == (27, 2)
    assert np.allclose(found.joints[:15, 0, 0, 2], 1 + 0.5 * np.arange(15))
    assert np.allclose(found.joints[15:, 0, 0, 2], 3 + 0.05 * np.arange(12))  # 15 to 26 does not overlap 0 to 14
    assert found.present[:, 1].tolist() == [3 <= t < 16 for t in range(27)]


def test_gaps_are_closed_as_released_or_kept() -> None:
    seen = [[(1, track(1, float(t + 1))[0])] if t != 2 else [(2, track(1, 9.0)[0])] for t in range(5)]
    data = skeleton_text(seen)
    kept = cleaned(data, BodyRule("identity", 9, "longest", 1)).joints[:, 0, 0, 2].tolist()
    closed = cleaned(data, BodyRule("identity", 9, "longest", 1, close_gaps=True)).joints[:, 0, 0, 2].tolist()
    assert (kept, closed) == ([1, 2, 0, 4, 5], [1, 2, 4, 5, 0])


def test_nobody_is_a_reject() -> None:
    for data in (skeleton_text([[], []]), skeleton_text([[(1, np.zeros((V, 3)))]])):
        with pytest.raises(Reject, match="no_body"):
            cleaned(data, "st_gcn")
    short = parsed((1, 0, track(5, 1.0)), (2, 0, track(5, 2.0)), frames=5)
    with pytest.raises(Reject, match="no_body"):
        cleaned(short, "ctr_gcn")
    assert cleaned(short, BodyRule("identity", 9, "first", 2, Noise(4, 0.8, 0.7))).joints.shape[1] == 2


# ---------------------------------------------------------------------------------------------------------------- names


def test_names_and_protocols() -> None:
    row = listed_by_name("S002C003P038R002A060", "x")
    assert row is not None
    assert (row.setup, row.camera, row.performer, row.replication, row.class_name) == (
        2,
        3,
        38,
        2,
        "walking apart from each other",
    )
    assert (row.x_sub, row.x_view, row.x_set) == ("train", "train", "train")
    other = listed_by_name("S031C001P106R001A120", "")
    assert other is not None
    assert (other.x_sub, other.x_view, other.x_set) == ("test", "test", "test")
    bad = ("", "S1C1P1R1A1", "S001C001P001R001A000", "S001C001P001R001A121", "S033C001P001R001A001", "XS001C001P001R001A001")
    assert [listed_by_name(name, "") for name in (*bad, "S001C001P001R001A00¹")] == [None] * 7


def test_folders_are_listed_in_one_order(tmp_path: Path) -> None:
    for name in ("b/S001C001P001R001A002.skeleton", "a/S001C002P001R001A001.skeleton", "a/S1.skeleton", "a/notes.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("0")
    rows = list(list_ntu(root=str(tmp_path)))
    assert [row.key for row in rows if not isinstance(row, Rejected)] == ["S001C002P001R001A001", "S001C001P001R001A002"]
    assert {row.key: row.reason for row in rows if isinstance(row, Rejected)} == {
        "a/S1.skeleton": "bad_name",
        "a/notes.txt": "not_skeleton",
    }


def test_lists_of_names(tmp_path: Path) -> None:
    (tmp_path / "names.txt").write_text("S001C001P001R001A001.skeleton\n\nS001C001P001R001A999\n")
    rows = list(list_ntu_names(path=str(tmp_path / "names.txt")))
    assert [row.key for row in rows] == ["S001C001P001R001A001", "line 3"]
    (tmp_path / "missing.txt").write_text("Samples without skeletons:\nS001C001P001R001A001\nS001C001P001R001A002.skeleton\n")
    assert read_missing(str(tmp_path / "missing.txt")) == {"S001C001P001R001A001", "S001C001P001R001A002"}
    (tmp_path / "none.txt").write_text("nothing\n")
    with pytest.raises(ValueError, match="no name such as"):
        read_missing(str(tmp_path / "none.txt"))


def test_published_counts_of_the_protocols(shared_data: Path) -> None:
    """X-Sub 40,091 and 16,487, X-View 37,646 and 18,932: the 60 classes less the 302 missing ones."""
    fact = facts().ntu
    rows = list(list_ntu_names(path=str(shared_data / "ntu" / "skes_available_name.txt")))
    assert len(rows) == fact.available
    assert len(read_missing(str(shared_data / "ntu" / "samples_with_missing_skeletons.txt"))) == fact.missing
    for column, counts in (("x_sub", fact.x_sub), ("x_view", fact.x_view)):
        sides = [getattr(row, column) for row in rows]
        assert (sides.count("train"), sides.count("test")) == counts
    # The files beside the names say the same.
    for column in ("setup", "camera", "performer", "replication"):
        told = (shared_data / "ntu" / f"{column}.txt").read_text().split()
        assert [getattr(row, column) for row in rows] == list(map(int, told))
    labels = [int(text) - 1 for text in (shared_data / "ntu" / "label.txt").read_text().split()]
    assert [row.class_name for row in rows] == [fact.classes[label] for label in labels]
    assert list(fact.classes[:60]) == (shared_data / "ntu" / "label_map_ntu60.txt").read_text().splitlines()


def test_counts_of_the_120_classes_are_whole_recordings_less_the_missing_ones(shared_data: Path) -> None:
    """Each performer has 360 recordings in a setup: 60 actions, three cameras, twice. The 60 classes, of which names are at
    hand, are part of each count; what is left of them are whole performers again."""
    fact = facts().ntu_120
    assert sum(fact.x_sub) == sum(fact.x_set) == fact.available == 114_480 - fact.missing
    assert sum(fact.missing_x_sub) == sum(fact.missing_x_set) == fact.missing
    folder = shared_data / "ntu"
    rows = list(list_ntu_names(path=str(folder / "skes_available_name.txt")))
    lost = [listed_by_name(name, "") for name in read_missing(str(folder / "samples_with_missing_skeletons.txt"))]
    for column, counts, missing in (("x_sub", fact.x_sub, fact.missing_x_sub), ("x_set", fact.x_set, fact.missing_x_set)):
        for side, count, gone in zip(("train", "test"), counts, missing, strict=True):
            of_60 = [getattr(row, column) for row in rows].count(side) + [getattr(row, column) for row in lost].count(side)
            assert (count + gone) % 360 == of_60 % 360 == 0
            assert 0 < of_60 < count
