"""Files of strangers that took gigabytes, went on without end, ended the process, or were told without a name or at length."""

from __future__ import annotations

import base64
import io
import itertools
import resource
import struct
import subprocess
import sys
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from benchwright.curation import bounded_reading
from benchwright.curation.parquet_footer import column_chunks
from benchwright.curation.qa.mturk import _write
from benchwright.curation.qa.votes import VOTES, read_votes
from benchwright.curation.rows import Rejected
from benchwright.datasets.activitynet.annotations import read_tsp_csv
from benchwright.datasets.demo_photos.album import make_album
from benchwright.datasets.features.arrays import strings
from benchwright.datasets.features.backbones import Backbone, load_backbone
from benchwright.datasets.iirc.hierarchy import read_hierarchy
from benchwright.datasets.kinetics.lists import ListFile, kinetics_lists, read_kinetics_list
from benchwright.datasets.skeleton.files import joints_from_npy
from benchwright.datasets.two_camera.pair_files import read_charts
from benchwright.datasets.videos.plain import list_csv
from benchwright.pipelines import config as settings
from benchwright.pipelines.cli import exits
from benchwright.pipelines.cli import main as cli
from benchwright.pipelines.config import ConfigError
from benchwright.pipelines.vclimb.config import VclimbConfig

# --------------------------------------------------------------------------------------------------------------- lists


_TOO_WIDE = r"its header has 1,50\d columns: 1,000 are read at most"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        # JSON of another form was cut into a million columns of polars
        (b"[" + b"0," * 1500 + b"0]\n", "its entries are not clips of Kinetics: the first is not an object"),
        (b"label,youtube_id,time_start,time_end" + b",x" * 1500 + b"\n", _TOO_WIDE),
        (b"label\n" + (b"x" + b"," * 1500 + b"\n") * 3, _TOO_WIDE),
    ],
)
def test_a_list_of_kinetics_has_no_thousands_of_columns(tmp_path: Path, text: bytes, told: str) -> None:
    (tmp_path / "a.csv").write_bytes(text)
    (piece,) = kinetics_lists(root=str(tmp_path), files=[ListFile("r", "a.csv", split="train")])
    with pytest.raises(ValueError, match=rf"list 'a\.csv': {told}"):
        list(read_kinetics_list(piece, root=str(tmp_path)))


def test_a_quoted_field_of_a_megabyte_is_one_bad_row(tmp_path: Path) -> None:
    line = b"label,AAAAAAAAAAA,1,2\n"
    (tmp_path / "a.csv").write_bytes(line + b'"' + b"x," * 500_000 + b'",AAAAAAAAAAB,1,2\n' + line)
    (piece,) = kinetics_lists(root=str(tmp_path), files=[ListFile("r", "a.csv", split="train")])
    (made,) = read_kinetics_list(piece, root=str(tmp_path))
    assert made.kept.num_rows == 2
    assert made.rejected["reason"].to_pylist() == ["malformed_row"]


HEADS = {
    "tsp": b"video-name,t-start,t-end,action-label,video-duration,temporal-region-label\n",
    "own": b"video,label\n",
}


@pytest.mark.parametrize("kind", HEADS)
def test_a_list_of_bad_lines_alone_ends_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(bounded_reading, "MAX_BAD_ROWS", 100)
    (tmp_path / "a.csv").write_bytes(HEADS[kind] + b"x\n" * 1000)
    path = str(tmp_path / "a.csv")
    rows = read_tsp_csv(root=str(tmp_path), files={"train": "a.csv"}) if kind == "tsp" else list_csv(path=path)
    assert all(isinstance(row, Rejected) for row in itertools.islice(rows, 100))
    with pytest.raises(ValueError, match=r"a\.csv'?: more than 100 rows cannot be used, the last one for malformed_row"):
        next(rows)


@pytest.mark.parametrize(
    ("head", "told"),
    [
        (b"t-start," + HEADS["tsp"], "its header names 't-start' twice: which column is meant"),
        (HEADS["tsp"].replace(b"\n", b",x" * 1000 + b"\n"), "its header has 1,006 columns"),
        (HEADS["tsp"].replace(b"t-end,", b""), r"no column 't-end' \(source\.files\.val: is it a file of TSP's"),
    ],
)
def test_a_list_of_tsp_whose_columns_are_not_clear(tmp_path: Path, head: bytes, told: str) -> None:
    (tmp_path / "a.csv").write_bytes(head + b"\n")
    with pytest.raises(ValueError, match=rf"list 'a\.csv'.* {told}"):
        list(read_tsp_csv(root=str(tmp_path), files={"val": "a.csv"}))


@pytest.mark.parametrize("text", [b"x" * 200_000, b"name,x0,y0,x1,y1,x2,y2,x3,y3\n" + b"x" * 200_000 + b",0\n"])
def test_positions_of_charts_in_a_long_line(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "charts.csv").write_bytes(text)
    with pytest.raises(ValueError, match=r"charts\.csv, line [12]: field larger than"):
        read_charts(str(tmp_path), "charts.csv")


# ------------------------------------------------------------------------------------------------------------- settings


def test_an_error_quotes_little_and_nothing_that_a_terminal_obeys(tmp_path: Path) -> None:
    (tmp_path / "h.csv").write_bytes(bytes(3000))
    with pytest.raises(ValueError, match=r"no column 'subclass' \(hierarchy\.path\)") as raised:
        read_hierarchy(str(tmp_path / "h.csv"))
    assert len(str(raised.value)) < 500
    line = exits.error_line(ValueError("\x1b[2Jred\u202e " + "a" * 100_000 + ": set x.y=1"))
    assert line.isprintable()
    assert len(line) < 1600
    assert line.startswith(r"\x1b[2Jred\u202e aaa")
    assert line.endswith(": set x.y=1")
    assert exits.error_line(OSError(2, "No such file", "a" * 10_000)).count("a") < 1600


@pytest.mark.parametrize("number", ["0x" + "f" * 5000, "9" * 5000])
def test_a_huge_number_in_settings_is_told_with_its_file(tmp_path: Path, number: str) -> None:
    (tmp_path / "mine.toml").write_text(f'extends = "tiny"\n[x]\ny = {number}\n')
    with pytest.raises(ConfigError, match=r"mine\.toml"):
        settings.load(VclimbConfig, tmp_path / "mine.toml", benchmark="vclimb")


def test_gold_questions_that_are_a_link_to_themselves(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    small = [
        "source.count=60",
        "retrieval.candidates=10",
        "retrieval.per_class=5",
        "choice.per_class=2",
        "buckets.rule.count=2",
    ]
    words = [word for setting in (*small, 'qa.votes="imported"') for word in ("--set", setting)]
    out = str(tmp_path / "out")
    assert cli.call(["run", "clear", "--config", "tiny", "--out", out, "--quiet", *words]) == 0
    (tmp_path / "g.csv").symlink_to("g.csv")
    capfd.readouterr()
    assert cli.call(["qa", "export", out, "--gold", str(tmp_path / "g.csv")]) == 1
    assert capfd.readouterr().err == f"benchwright: {tmp_path}/g.csv: too many levels of symbolic links\n"


# ------------------------------------------------------------------------------------------------------------- Parquet

HISTOGRAM = zlib.decompress(
    base64.b85decode(
        "c-rk%O=}uK7=CwlGa6ZlDV=2(q)17IG?-"
        "Ki23rE@tY|Dzs?tUxy==|a2%1<wD*XpJ_Ed80sq`0={)GMnk2!kuC_Qy%){oGZn1H?Ig?VRo=AGwbKW6i+7$X{aKptiZCU6g6C7}R-"
        "Bhp)uDg?-"
        "VVn+CKkT)FKfeoc%D$eREUk$7wp0R?|HQ+d5vX<qYzzObxjNzWw!*dSAc_Ks~1DXEG%49U$GhpK%vyy5hA*j?%k#$v3H}7=c>Asn6>rEU?+^(F"
        "s4Toqz^mSya-P-XwWJA0vj!fS>*XeXyE<prmg`&7-"
        "YV}&XLlBSvFZa21x8a_4z%Z?>6`>F!x)lc;v?LNi1~$$W<C8+u)PL2x6%j@S3~)aPb`5N$Eee>E2$X<_l9(uvtP?g4s~dgAxKwCgp%=>S?!{l!"
        "k0|Ek;=b@^Tyo9SZwwJ!>*u>lM`)fS{HG(B@93vS&$Y!n8lkzCzG6C9y0xVnJft5!I>L*$G+4UE(uK72d71Y8|HIO^039qZ-"
        "csLt@j|A~ip7_uXWqwYenF2#JY^yZ%!>oYdd#k}G-FkktjamtW-KQLNyc8tiCNFQp&gxGAH3qA2|h^W(sHsVa%#$AOR9`W<;LO3apv%2xsa>~D"
        "bYMnqP&os6-}j$@%QV|a!Jq~2|fFwXJZ|l<h9Vv^=E_+x!IoVPNk&?yE@Y&Ls+w8PDz%guJVByZaS^^UAMDUX*Rc<R_m-"
        "6{@}LSwX@Uklb!A8cFc<KQ%xLfzche6|HJ<V%F!Sn"
    )
)
"""Columns ``uid`` and ``feature``; its footer says too little of how lists are nested, at which pyarrow ends the process."""


def test_damaged_statistics_end_no_process(tmp_path: Path) -> None:
    (tmp_path / "f.parquet").write_bytes(HISTOGRAM)
    code = (
        "import sys\n"
        "from benchwright.datasets.features import parquet\n"
        "from benchwright.datasets.features.files import FeatureFile\n"
        "for stretch in parquet.stretches(sys.argv[1], FeatureFile('f.parquet'), 1000):\n"
        "    list(parquet.read_stretch(sys.argv[1], FeatureFile('f.parquet'), stretch, 2))\n"
    )
    ended = subprocess.run([sys.executable, "-P", "-c", code, str(tmp_path)], capture_output=True, text=True)
    assert ended.returncode in (0, 1)
    assert "terminate called" not in ended.stderr


@pytest.mark.parametrize("how", [{}, {"write_statistics": False}, {"use_dictionary": False}, {"compression": "zstd"}])
def test_a_footer_is_read_as_pyarrow_reads_it(how: dict[str, object]) -> None:
    table = pa.table({"a": ["x", "y", None] * 20, "b": [[1.0, None]] * 60, "c": [{"d": 1, "e": None}] * 60})
    held = io.BytesIO()
    pq.write_table(table, held, row_group_size=25, **how)  # type: ignore[arg-type]
    meta = pq.ParquetFile(held).metadata
    found = column_chunks(held)
    assert [len(chunks) for chunks in found] == [meta.num_columns] * meta.num_row_groups == [4] * 3
    for n, chunks in enumerate(found):
        for c, chunk in enumerate(chunks):
            wanted = meta.row_group(n).column(c)
            start = min(filter(None, (wanted.dictionary_page_offset, wanted.data_page_offset)))
            assert chunk.column == wanted.path_in_schema
            assert (chunk.values, chunk.size, chunk.start) == (wanted.num_values, wanted.total_uncompressed_size, start)
            assert (chunk.stored, chunk.has_dictionary) == (wanted.total_compressed_size, wanted.has_dictionary_page)


def test_a_damaged_footer_is_told() -> None:
    held = io.BytesIO()
    pq.write_table(pa.table({"a": ["x"] * 3}), held)
    data = held.getvalue()
    size = struct.unpack("<I", data[-8:-4])[0]
    begin = len(data) - 8 - size
    refused = 0
    for place in range(begin, len(data) - 8):
        for flip in (0x01, 0x10, 0x80):
            broken = bytearray(data)
            broken[place] ^= flip
            try:
                column_chunks(io.BytesIO(bytes(broken)))
            except ValueError as error:
                refused += "its footer is damaged" in str(error)
    assert refused > 100
    for bad in (b"", b"PAR1", b"\x19" * 5000 + struct.pack("<I", 5000) + b"PAR1"):
        with pytest.raises(ValueError, match="its footer is damaged"):
            assert column_chunks(io.BytesIO(bad))


@pytest.mark.parametrize(("labels", "key", "told"), [(2000, 1, "labels in"), (1, 100_000, "its votes take")])
def test_votes_that_repeat_what_is_long(tmp_path: Path, labels: int, key: int, told: str) -> None:
    votes = [{"key": "k" * key, "form": "labels", "worker": "w", "labels": ["red"] * labels}] * 200
    pq.write_table(pa.Table.from_pylist(votes, schema=VOTES), tmp_path / "v.parquet", compression="zstd")
    assert (tmp_path / "v.parquet").stat().st_size < 10_000
    with pytest.raises(ValueError, match=rf"v\.parquet: not a file of votes: .*{told}"):
        read_votes(str(tmp_path / "v.parquet"))


# -------------------------------------------------------------------------------------------------------------- arrays


def test_numbers_that_are_no_character_are_half_surrogate_pairs() -> None:
    codes = np.array([[97, 98], [0x110000, 99], [0xFFFFFFFF, 0]], np.uint32)
    for order in "<>":
        names = codes.astype(f"{order}u4").view(f"{order}U2").reshape(-1)
        assert strings(names) == ["ab", "\udc80c", "\udc80"]


def test_skeletons_of_signalling_numbers_warn_of_nothing(recwarn: pytest.WarningsRecorder) -> None:
    held = io.BytesIO()
    np.save(held, np.full((2, 25, 3), 0x7F800001, np.uint32).view(np.float32))
    assert np.isnan(joints_from_npy(held.getvalue())).all(), "missing joints, which are rejected or filled later"
    assert not recwarn.list


def test_a_damaged_model_is_told_by_its_name(tmp_path: Path) -> None:
    import torch

    held = io.BytesIO()
    torch.jit.save(torch.jit.script(torch.nn.ReLU()), held)
    source = zipfile.ZipFile(io.BytesIO(held.getvalue()))
    with zipfile.ZipFile(tmp_path / "m.pt", "w") as made:
        for info in source.infolist():
            body = source.read(info)
            made.writestr(info.filename, body.replace(b"inplace", b"inpl\xffce") if info.filename.endswith(".py") else body)
    with pytest.raises(ValueError, match=r"m\.pt is not a TorchScript model: "):
        load_backbone(Backbone("torchscript", run_code_from_weights=True), checkpoint=str(tmp_path / "m.pt"))


# ---------------------------------------------------------------------------------------------------------- full disks


def test_a_full_disk_is_told_with_the_file(tmp_path: Path) -> None:
    """The system names no file where it has no room for what is written to it: a limit of a file's size is told likewise."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large") as export:
            _write(tmp_path / "upload/a.csv", b"x" * 1000)
        with pytest.raises(OSError, match="File too large") as album:
            make_album(tmp_path / "album", photos=100, seed=0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert export.value.filename == str(tmp_path / "upload/a.csv")
    assert str(tmp_path / "album") in str(album.value.filename)


MEASURE = """
import sys
from benchwright.curation.cost import peak_bytes_of_all
from benchwright.pipelines import api
features = f"features={{kind='stored',root='{sys.argv[1]}',width=8,files=[{{path='f.npz'}}]}}"
try:
    api.run(api.job("kowl", config="tiny", overrides=[features]), sys.argv[2], scheduler="threads", workers=2)
except RuntimeError as error:
    print(error)
print(peak_bytes_of_all() >> 20)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is measured through /proc")
def test_a_run_does_not_read_rows_of_gigabytes(tmp_path: Path) -> None:
    wide = 1 << 29  # bytes, in a file of half a megabyte
    (tmp_path / "in").mkdir()
    with zipfile.ZipFile(tmp_path / "in/f.npz", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, values in (
            ("uid", np.array(["AAAAAAAAAAA_000001_000011"])),
            ("feature", np.zeros((1, wide // 4), np.float32)),
        ):
            with archive.open(f"{name}.npy", "w") as entry:
                np.lib.format.write_array(entry, np.broadcast_to(values, values.shape))
    ended = subprocess.run(
        [sys.executable, "-P", "-c", MEASURE, str(tmp_path / "in"), str(tmp_path / "out")],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    told, peak = ended.stdout.splitlines()
    assert "1 wrong_width, such as 'f.npz:0' (AAAAAAAAAAA_000001_000011: 134217728 numbers" in told
    assert int(peak) < 600  # MiB; the interpreter and its libraries take 150 of them
