"""Code of one's own, and of installed packages, wherever settings or the command line name it; and code that is not trusted."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import stat
import sys
from pathlib import Path

import pytest
from benchwright.curation.artifact import load_run
from benchwright.curation.store import Store
from benchwright.pipelines import api, trusted_code
from benchwright.pipelines.errors import WrongUse
from benchwright.pipelines.listing import REGISTRIES, list_names
from benchwright.pipelines.names import reference_of
from benchwright.pipelines.sources import SOURCES
from benchwright.training.baselines import clear, iirc
from benchwright.training.illuminants.registry import candidates
from benchwright.training.methods.registry import METHODS

from tests.files import files_of
from tests.installed import Install
from tests.pipelines.conftest import Cli

pytestmark = pytest.mark.usefixtures("blank_figures")

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"
WORDS = (EXAMPLES / "words.py").read_text()
TINY = ["clear", "--config", "tiny", "--set", "source.count=300"]
SETTINGS = 'folder = "."\nmin_words = 4\nmax_rejects = 3\nfiles_per_shard = 4\n'

ENCODER = '''
import numpy as np

class MeanColour:
    """Mean colour of an image.

    Fits: images, texts.
    """

    def __init__(self, *, gamma: float = 1.0):
        self.gamma = gamma

    def encode_image(self, pixels):
        return (pixels.reshape(-1, 3).mean(axis=0) / 255 + 0.01) ** self.gamma

    def encode_text(self, text):
        return np.array([1.0 + (name in text) for name in ("red", "green", "blue")])

class Hidden:
    def __init__(self, init, *, sample):
        self.sample = sample

class OnlyImages:
    def encode_image(self, pixels):
        return np.ones(3)

def with_weights(weights, *, device):
    return MeanColour()
'''


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user who has named nothing yet."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(trusted_code, "_allowed", set())
    return tmp_path / "state/benchwright/named-code"


def own_file(folder: Path, text: str) -> Path:
    """A file of the user's, under a name that no other test has loaded a file by."""
    folder.mkdir(exist_ok=True)
    file = folder / f"own_{abs(hash(str(folder)))}.py"
    file.write_text(text)
    return file


def another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was named in this process counts no longer."""
    monkeypatch.setattr(trusted_code, "_allowed", set())


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    folder = tmp_path / "texts"
    folder.mkdir()
    for number in range(9):
        (folder / f"text{number:02d}.txt").write_text(f"the {'word ' * (number + 2)} and the end")
    return folder


# ----------------------------------------------------------------------------------------------------- benchmarks


def test_a_method_that_two_packages_offer_is_no_unknown_one(install: Install) -> None:
    for number in (1, 2):
        install(f"calm-{number}", "1.0", {}, {"benchwright.methods": f"calm = calm_{number}:calm"})
    with pytest.raises(WrongUse, match=r"method 'calm' is offered by calm-1 1.0 and calm-2 1.0: name it as module:attribute"):
        reference_of(METHODS, "calm", METHODS.builtin)


@pytest.fixture
def words_package(install: Install) -> Path:
    files = {
        "words_pkg/__init__.py": "",
        "words_pkg/pipeline.py": WORDS.replace('name="words"', 'name="pkg_words"'),
        "words_pkg/published.toml": SETTINGS,
        "words_pkg/strict.toml": 'extends = "many"\nmin_words = 7\n',
        "words_pkg/many.toml": SETTINGS.replace("max_rejects = 3", "max_rejects = 9"),
    }
    return install("words-pkg", "3.1", files, {"benchwright.benchmarks": "pkg_words = words_pkg.pipeline:BENCHMARK"})


@pytest.mark.parametrize("scheduler", ["threads", "processes"])
def test_a_benchmark_of_an_installed_package(
    bw: Cli, words_package: Path, texts: Path, tmp_path: Path, scheduler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    told = bw("run", "pkg_words", "--set", f"folder={texts}", "--out", out, "-q", "--scheduler", scheduler, "--workers", 1)
    assert told.code == 0, told.err
    another_process(monkeypatch)
    assert bw("verify", out, "--remake", tmp_path / "again").code == 0  # an installed package need not be named
    assert json.loads((out / "run.json").read_text())["code"]["pipeline"] == "pkg_words"
    told = bw("run", "pkg_words", "--config", "strict", "--set", f"folder={texts}", "--out", tmp_path / "strict", "-q")
    assert told.code == 0, told.err
    assert json.loads(bw("show", tmp_path / "strict", "--json").out)["stages"][1]["rejects"] == {"too_short": 1}
    assert "min_words = 4" in bw("config", "pkg_words").out
    assert "there are many, strict" in bw("plan", "pkg_words", "--config", "strikt", "--out", out).err
    assert "words-pkg 3.1" in bw("list").out
    row = next(row for row in json.loads(bw("list", "--json").out) if row["name"] == "pkg_words")
    assert (row["title"], row["configs"]) == ("Text files and their words", ["many", "strict"])
    assert not trusted_code.state_file().exists()


def test_the_three_forms_name_one_benchmark(bw: Cli, words_package: Path, texts: Path, tmp_path: Path) -> None:
    for number, name in enumerate(("pkg_words", "words_pkg.pipeline:BENCHMARK", f"{words_package}/words_pkg/pipeline.py")):
        out = tmp_path / f"out{number}"
        told = bw("run", name, "--set", f"folder={texts}", "--out", out, "-q")
        assert told.code == 0, told.err
    digests = [json.loads(bw("show", tmp_path / f"out{number}", "--json").out)["digest"] for number in range(3)]
    assert len(set(digests)) == 1
    assert files_of(tmp_path / "out0/dataset") == files_of(tmp_path / "out2/dataset")


def test_a_benchmark_of_a_package_that_is_gone_is_one_line(
    bw: Cli, words_package: Path, texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    assert bw("run", "pkg_words", "--set", f"folder={texts}", "--out", out, "-q").code == 0
    shutil.rmtree(next(words_package.glob("*.dist-info")))
    told = bw("report", out)
    assert (told.code, told.err.count("\n")) == (2, 1)
    assert "the run was made by 'pkg_words': no benchmark 'pkg_words'" in told.err


def test_a_built_in_name_is_the_built_in_one_and_list_says_so(bw: Cli, install: Install, tmp_path: Path) -> None:
    install("clear-pkg", "1.0", {"clear_pkg.py": WORDS}, {"benchwright.benchmarks": "clear = clear_pkg:BENCHMARK"})
    told = bw("plan", "clear", "--config", "tiny", "--out", tmp_path / "o").out
    assert "listed     source      synthetic.draw_pictures" in told
    assert "clear-pkg 1.0, not used: a built-in benchmark has this name" in bw("list").out


# ---------------------------------------------------------------------------------------- encoders, sources, transforms


def test_an_encoder_in_three_forms(bw: Cli, install: Install, tmp_path: Path) -> None:
    install("hues-pkg", "0.2", {"hues_pkg.py": ENCODER}, {"benchwright.encoders": "hues = hues_pkg:MeanColour"})
    mine = own_file(tmp_path / "mine", ENCODER)
    digests: set[str] = set()
    for number, kind in enumerate(("hues", "hues_pkg:MeanColour", f"mine/{mine.name}:MeanColour")):
        out, toml = tmp_path / f"out{number}", tmp_path / f"mine{number}.toml"
        toml.write_text(f'extends = "tiny"\n[source]\ncount = 300\n[encoder]\nkind = "{kind}"\nsettings = {{gamma = 2.0}}\n')
        told = bw("run", "clear", "--config", toml, "--out", out, "-q", "--scheduler", ("threads", "sync", "processes")[number])
        assert told.code == 0, told.err
        digests.add(json.loads(bw("show", out, "--json").out)["stages"][5]["digest"])
        assert str(tmp_path) not in (out / "dataset/README.md").read_text() + (out / "dataset/dataset.json").read_text()
    assert len(digests) == 1
    assert json.loads((tmp_path / "out2/run.json").read_text())["config"]["encoder"]["kind"] == f"{mine}:MeanColour"


def test_an_edit_of_an_encoder_makes_its_stages_again(bw: Cli, tmp_path: Path) -> None:
    encoder, out = own_file(tmp_path, ENCODER), tmp_path / "out"
    run = [*TINY, "--set", f"encoder.kind={encoder}:MeanColour", "--out", out]
    assert bw("run", *run, "-q").code == 0
    encoder.write_text(ENCODER.replace('"""Mean colour of an image.', '"""The mean colour.'))
    assert bw("plan", *run).out.startswith("13 of 13 stages")
    encoder.write_text(ENCODER.replace("+ 0.01", "+ 0.02"))
    told = bw("plan", *run).out
    assert told.startswith("5 of 13 stages")
    assert told.count(f"stale: {encoder.stem}.MeanColour changed") == 2  # embedded and retrieved
    assert bw("run", *run, "-q").code == 0
    assert bw("verify", out).code == 0


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("encoder.kind=hue", "encoder.kind = 'hue': no encoder 'hue': there are colours, conse, open_clip, or name your"),
        ("encoder.kind=efficientnet_lite", "no encoder 'efficientnet_lite': there are colours, conse, open_clip"),
        ("encoder.kind=x.py:y", "encoder.kind = 'x.py:y': encoder 'x.py': no such file"),
        ("encoder={kind='MINE:MeanColour', sets=3}", "encoder.sets: there is no such setting; there are kind, settings"),
        (
            "encoder={kind='MINE:MeanColour', settings={gama=3}}",
            "encoder.settings.gama = 3: there is no such setting: there are ",
        ),
        ("encoder={kind='MINE:Nothing'}", "has no 'Nothing'"),
        ("encoder={kind='MINE:Hidden'}", ":Hidden': an encoder has a method encode_image, and this class has none"),
        ("encoder={kind='MINE:OnlyImages'}", ":OnlyImages': an encoder has a method encode_text, and this class has none"),
        (
            "encoder={kind='MINE:MeanColour'}\nencoder_run.checkpoint=x.pt",
            "encoder_run.checkpoint = 'x.pt': MINE:MeanColour takes no file of weights: remove this setting",
        ),
        ("encoder_run.checkpoint=x.pt", "encoder_run.checkpoint = 'x.pt': colours takes no file of weights: remove this"),
        (
            "features.own.encoder={kind='MINE:Hidden'}",
            "features.own.encoder.kind = 'MINE:Hidden': an encoder has a method encode_image, and this class has none",
        ),
        (
            "features.own.encoder={kind='MINE:MeanColour', settings={gama=3}}",
            "features.own.encoder.settings.gama = 3: there is no such setting: there are ",
        ),
        (
            "features.own={weights='x.pt', encoder={kind='MINE:MeanColour'}}",
            "features.own.weights = 'x.pt': MINE:MeanColour takes no file of weights: remove this setting",
        ),
        ("encoder={kind='MINE:with_weights'}", "encoder.settings.weights is missing: there are weights: these are of "),
        ("encoder={kind='nowhere_at_all:Nothing'}", "no module nowhere_at_all"),
        ("source.kind=web", "source.kind = 'web': no source 'web': there are drawn, folder, labelled, release, tars, yfcc100m"),
        ("source={kind='MINE:MeanColour', paths={x='y'}}", ":MeanColour': step MeanColour: a step is a function"),
        ("source=3", "source: it needs the setting kind"),
    ],
)
def test_a_name_that_is_wrong_is_one_line(bw: Cli, tmp_path: Path, setting: str, told: str) -> None:
    mine = own_file(tmp_path, ENCODER)
    sets = [word for each in setting.replace("MINE", str(mine)).split("\n") for word in ("--set", each)]
    answer = bw("run", "clear", "--config", "tiny", *sets, "--out", tmp_path / "out")
    assert (answer.code, answer.err.count("\n")) == (2, 1), answer.err
    assert told.replace("MINE", mine.name) in answer.err
    assert not (tmp_path / "out/stages").exists()


@pytest.mark.parametrize(
    ("vector", "told"),
    [
        ("[0.0, 0.0]", "a vector is zero, or not finite"),
        ("[[1.0]]", "expected one vector of numbers"),
        ("np.ones(2 + pixels[0, 0, 0] % 2)", "vectors of"),
    ],
)
def test_vectors_that_are_none_are_told(bw: Cli, tmp_path: Path, vector: str, told: str) -> None:
    methods = (
        f"def encode_image(self, pixels):\n        return {vector}\n    def encode_text(self, text):\n        return [1.0]\n"
    )
    file = own_file(tmp_path, f"import numpy as np\nclass Odd:\n    {methods}")
    run = ["run", "clear", "--config", "tiny", "--set", f"encoder.kind={file}:Odd", "--out", tmp_path / "out", "-q"]
    answer = bw(*run)
    assert (answer.code, answer.err.count("\n")) == (1, 1), answer.err
    assert "stage 'embedded'" in answer.err
    assert told in answer.err


SOURCE = '''
from collections.abc import Iterator
from dataclasses import dataclass
import io
from pathlib import Path
from PIL import Image
from benchwright import Blob, Rejected

@dataclass(frozen=True)
class Square:
    key: str
    image: Blob
    extension: str
    split: str
    class_name: str
    file: str

def squares(*, names: str, each: int, seed: int) -> Iterator[Square | Rejected]:
    """Squares of the colours that a file names.

    Fits: iirc.
    """
    for name in Path(names).read_text().split():
        for number in range(each):
            stream = io.BytesIO()
            Image.new("RGB", (16, 16), (seed % 256, number, len(name))).save(stream, "PNG")
            split = "train" if number % 4 else "test"
            yield Square(f"{name}-{number:03}", Blob(stream.getvalue()), "png", split, name, f"{name}/{number:03}.png")
    yield Rejected("last", "dull", "no colour")
'''


def test_a_source_of_ones_own_counts_by_the_content_of_its_paths(bw: Cli, tmp_path: Path) -> None:
    file, names, out = own_file(tmp_path, SOURCE), tmp_path / "names.txt", tmp_path / "out"
    names.write_text("red blue\n")
    (tmp_path / "levels.json").write_text('{"super_classes": {"hue": ["red", "blue"]}, "other_sub_classes": []}')
    (tmp_path / "mine.toml").write_text(
        f'extends = "tiny"\n[source]\nkind = "{file.name}:squares"\npaths = {{names = "names.txt"}}\n'
        'settings = {each = 8}\nmax_rejects = 1\n[hierarchy]\nkind = "file"\npath = "levels.json"\n'
        '[tasks]\nkind = "drawn"\nfirst = 1\nlater = 1\nconfigurations = [0]\n'
    )
    arguments = ["iirc", "--config", tmp_path / "mine.toml", "--out", out]
    told = bw("run", *arguments, "-q", "--scheduler", "processes", "--workers", 1)
    assert told.code == 0, told.err
    found = json.loads(bw("show", out, "--json").out)["stages"][0]
    assert (found["rows"], found["rejects"]) == (16, {"dull": 1})
    assert bw("plan", *arguments).out.startswith("6 of 6 stages")
    names.write_text("blue red\n")
    assert "its source names changed" in bw("plan", *arguments).out
    file.write_text(SOURCE.replace("seed % 256", "seed % 255"))
    assert f"stale: {file.stem}.squares changed" in bw("plan", *arguments).out


def test_the_sources_that_are_listed_are_those_of_the_settings() -> None:
    import typing

    for name, registry in SOURCES.items():
        config = api.job(name, config="tiny").benchmark.config
        union = typing.get_type_hints(config, include_extras=True)["source"]
        kinds = {
            kind
            for each in typing.get_args(typing.get_args(union)[0])
            for kind in typing.get_args(typing.get_type_hints(each)["kind"])
        }
        assert kinds == set(registry.builtin), name


# --------------------------------------------------------------------------------------------------------------- list


@pytest.mark.parametrize("kind", REGISTRIES)
def test_every_name_of_every_kind_is_listed_with_what_it_fits_and_says(bw: Cli, kind: str) -> None:
    told = bw("list", kind)
    assert told.code == 0, told.err
    rows = json.loads(bw("list", kind, "--json").out)
    assert len(rows) == len(told.out.splitlines())
    assert all(row["name"] and row["summary"] and row["origin"] == "built-in" for row in rows), rows
    assert kind in ("benchmarks", "trackers") or all(row["fits"] for row in rows)


def test_what_packages_offer_is_listed_without_being_imported(bw: Cli, install: Install) -> None:
    text = 'raise OSError("imported")\n' + ENCODER
    offers = {f"benchwright.{kind}": "hues = hues_pkg:MeanColour" for kind in REGISTRIES}
    install("hues-pkg", "0.2", {"hues_pkg.py": text}, offers)
    for kind in set(REGISTRIES) - {"benchmarks"}:
        rows = json.loads(bw("list", kind, "--json").out)
        found = [row for row in rows if row["name"] == "hues"]
        assert [tuple(row.values()) for row in found] == [("hues", "images, texts", "Mean colour of an image.", "hues-pkg 0.2")]


def test_a_kind_that_is_none(bw: Cli) -> None:
    told = bw("list", "method")
    assert told.code == 2
    assert "no kind 'method': there are benchmarks" in told.err
    assert "did you mean 'methods'?" in told.err


# -------------------------------------------------------------------------------------------------------------- trust


@pytest.fixture
def received(bw: Cli, texts: Path, tmp_path: Path, state: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run of somebody else's pipeline: this user has named nothing. Its file writes down that it was run."""
    words = own_file(tmp_path / "elsewhere", WORDS + f"\nopen({str(tmp_path / 'ran')!r}, 'a').write('x')\n")
    out = tmp_path / "out"
    run = ["run", words, "--config", EXAMPLES / "words.toml", "--set", f"folder={texts}", "--out", out, "-q"]
    assert bw(*run).code == 0
    state.unlink()
    (tmp_path / "ran").unlink()
    another_process(monkeypatch)
    monkeypatch.setattr("benchwright.curation.code_loading._loaded", {})
    return out


@pytest.fixture
def words(tmp_path: Path) -> Path:
    """The file of that pipeline."""
    return tmp_path / "elsewhere" / f"own_{abs(hash(str(tmp_path / 'elsewhere')))}.py"


def test_naming_code_is_remembered_for_this_user_alone(
    bw: Cli, received: Path, words: Path, state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert bw("train", received, "--pipeline", words).code == 2
    assert state.read_text() == f"{words}\n"
    assert stat.S_IMODE(state.stat().st_mode) == 0o600
    assert stat.S_IMODE(state.parent.stat().st_mode) == 0o700
    another_process(monkeypatch)
    assert bw("verify", received, "--remake", tmp_path / "again").code == 0
    assert state.read_text() == f"{words}\n"


COMMANDS = [["train"], ["eval"], ["report"], ["release", "--to", "x"], ["qa", "export"], ["verify", "--remake", "x"]]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_code_that_a_run_names_is_not_run_unasked(
    bw: Cli, received: Path, words: Path, tmp_path: Path, command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names = command[: 2 if command[0] == "qa" else 1]
    told = bw(*names, received, *command[len(names) :])
    assert (told.code, told.err.count("\n")) == (2, 1), told
    assert f"{received} wants to run {words}:BENCHMARK, which you have not named: name it with --pipeline {words}" in told.err
    assert "--trust-code" in told.err
    assert not (tmp_path / "ran").exists()
    told = bw(*names, received, *command[len(names) :], "--trust-code")
    assert "which you have not named" not in told.err
    assert (tmp_path / "ran").exists()


def test_settings_of_a_received_run_name_no_code_that_is_run(
    bw: Cli, tmp_path: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder, out = own_file(tmp_path, ENCODER), tmp_path / "out"
    assert bw("run", *TINY, "--set", f"encoder.kind={encoder}:MeanColour", "--out", out, "-q").code == 0
    state.unlink()
    another_process(monkeypatch)
    told = bw("train", out)
    assert told.code == 2
    line = f"{out} wants to run {encoder}:MeanColour, which you have not named: allow it with --trust-code"
    assert told.err == f"benchwright: {line}\n"
    told = bw("verify", out, "--remake", tmp_path / "again", "--trust-code")
    assert told.code == 0, told.err


def test_what_lies_in_a_run_is_never_trusted_by_the_list(
    bw: Cli, received: Path, words: Path, state: Path, tmp_path: Path
) -> None:
    inside = Path(shutil.move(words, received))
    store = Store(str(received))
    dataclasses.replace(load_run(store), code={"pipeline": f"{inside}:BENCHMARK"}).save(store)
    state.write_text(f"{inside}\n")
    state.chmod(0o600)
    sys.modules.pop(inside.stem)
    told = bw("train", received)
    assert "which you have not named" in told.err
    assert not (tmp_path / "ran").exists()
    assert "has no baselines" in bw("train", received, "--trust-code").err


@pytest.mark.parametrize("damage", ["bytes", "folder", "link", "others", "unwritable"])
def test_a_list_that_is_damaged_or_of_others_counts_for_nothing(
    bw: Cli, received: Path, words: Path, state: Path, tmp_path: Path, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if damage == "bytes":
        state.write_bytes(os.urandom(3000))
    elif damage == "folder":
        state.mkdir()
    elif damage == "link":
        (tmp_path / "list").write_text(f"{words}\n")
        state.symlink_to(tmp_path / "list")
    elif damage == "others":
        state.write_text(f"{words}\n")
        state.chmod(0o666)
    else:
        shutil.rmtree(state.parent)
        state.parent.write_text("a file where the folder should be")
    told = bw("train", received)
    assert "which you have not named" in told.err
    for _ in range(2):  # naming it always works, in this process at least
        assert "has no baselines" in bw("train", received, "--pipeline", words).err
    if damage == "link":
        assert (tmp_path / "list").read_text() == f"{words}\n"
    if damage in ("bytes", "others"):
        another_process(monkeypatch)
        assert "has no baselines" in bw("train", received).err  # started again


@pytest.mark.parametrize(
    ("benchmark", "setting", "told"),
    [
        (
            "clear",
            "baselines.method_settings={ewc={strenght=1.0}}",
            "benchwright: baselines.method_settings.ewc.strenght = 1.0: there is no such setting: there are strength, ",
        ),
        ("clear", "baselines.model=tsn", "model 'tsn' takes clips, but samples here are vectors"),
        ("clear", "baselines.learning_rate=1e39", "learning_rate 1e+39 must be positive"),
        ("iirc", "evaluation.settings={nope={x=1}}", "nope"),
        ("iirc", "evaluation.methods=['twp']", "twp: method 'twp' trains only on batched graph streams"),
        ("vclimb", "evaluation.settings={nope={x=1}}", "nope"),
        ("vclimb", "evaluation.methods=['twp']", "twp: method 'twp' trains only on batched graph streams"),
        ("kowl", "evaluation.settings.nope.x=1", "evaluation.settings.nope: no predictor 'nope': there are ann, "),
        ("kowl", "evaluation.settings.evm.x=1", "evaluation.settings.evm has no 'x'"),
        ("two_camera", "evaluation.networks.network-200.settings={nope=1}", "network 'network-200': "),
        ("two_camera", "evaluation.method_settings.gray_world.nope=1", "estimator 'gray_world': "),
    ],
)
def test_a_run_refuses_wrong_baselines_before_it_makes_anything(
    bw: Cli, tmp_path: Path, benchmark: str, setting: str, told: str
) -> None:
    more = ["--set", "baselines.methods=['ewc']"] if benchmark == "clear" else []
    said = bw("run", benchmark, "-c", "tiny", "-o", tmp_path / "out", "--set", setting, *more)
    assert (said.code, said.err.count("\n")) == (2, 1), said.err
    assert told in said.err
    assert not (tmp_path / "out" / "stages").exists()


def test_rows_of_the_papers_tables_are_listed() -> None:
    methods, estimators = ({row["name"] for row in list_names(kind)} for kind in ("methods", "estimators"))
    assert methods >= {*clear.method_groups(), *clear.paper_methods(), *iirc.paper_methods()}
    assert estimators >= {*candidates()}
