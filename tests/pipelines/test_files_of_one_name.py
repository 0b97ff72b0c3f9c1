"""Files of the same name in several folders: each is trained under a name of its own, which it keeps."""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from benchwright.pipelines import api
from benchwright.pipelines.errors import WrongUse
from benchwright.pipelines.names import name_apart, settings_for
from benchwright.pipelines.training_results import finished_trainings

from .conftest import Cli, Told
from .test_experiments import FAST, METHOD, digests

pytestmark = pytest.mark.usefixtures("blank_figures")

PAGE = (Path(__file__).resolve().parents[2] / "docs/extending.md").read_text("utf-8")
EXAMPLES = dict(re.findall(r"```python title=\"(\w+)\.py\"\n(.*?)```", PAGE, re.DOTALL))
METHODS, NAME = textwrap.dedent(METHOD), "of_one_name.py"


@pytest.fixture
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str, str], None]:
    """Write a text into one folder, and the text after an edit into another, and go to the folder of both."""

    def write(text: str, old: str, new: str) -> None:
        assert old in text
        for folder, content in (("a", text), ("b", text.replace(old, new))):
            (tmp_path / folder).mkdir()
            (tmp_path / folder / NAME).write_text(content)
        monkeypatch.chdir(tmp_path)

    return write


@pytest.fixture
def out(tiny: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny, tmp_path / "run"))


def train(bw: Cli, out: Path, *methods: str, settings: tuple[str, ...] = ()) -> Told:
    named = [each for method in methods for each in ("--method", method)]
    return bw("train", out, "--protocol", "iid", *FAST, *settings, *named)


@pytest.mark.parametrize(("first", "second", "together"), [("a", "b", True), ("a", "b", False), ("b", "a", False)])
@pytest.mark.usefixtures("two_seeds")
def test_methods(bw: Cli, out: Path, two: Callable[..., None], first: str, second: str, together: bool) -> None:
    two(METHODS, "square()", "abs()")
    one, other = (f"{folder}/{NAME}:calm" for folder in (first, second))
    if together:
        told = train(bw, out, one, other)
        assert told.code == 0, told.err
        before = digests(out)
    else:
        assert train(bw, out, one).code == 0
        assert list(api.scores(str(out))["iid"]) == [f"{NAME}:calm"]
        before = digests(out)
        told = train(bw, out, other)
        assert (told.code, "stale" in told.err) == (0, False), told.err
    assert sorted(api.scores(str(out))["iid"]) == sorted([f"{NAME}:calm", other])
    assert before.items() <= digests(out).items()
    both = digests(out)
    for names in ((other, one), (other,), (one,)):  # whatever the order: each is up to date under its name
        assert train(bw, out, *names).err.count("up to date") == 2 * len(names)
        assert digests(out) == both
    assert api.stale(str(out)) == {}


@pytest.mark.usefixtures("two_seeds")
def test_a_file_that_was_edited_moved_or_copied_keeps_its_name(bw: Cli, out: Path, two: Callable[..., None]) -> None:
    two(METHODS, "square()", "square()  ")  # the code is the same
    a, b = Path("a", NAME), Path("b", NAME)
    b.unlink()
    assert train(bw, out, f"{a}:calm").code == 0
    a.write_text(METHODS.replace("square()", "abs()"))
    assert train(bw, out, f"{a}:calm").err.count(": trained") == 2
    shutil.copy(a, b)
    assert train(bw, out, f"{b}:calm", f"{a}:calm").err.count("up to date") == 2
    shutil.move(a, "moved_" + NAME)
    shutil.move("moved_" + NAME, b)
    b.write_text(METHODS)
    assert train(bw, out, f"{b}:calm").err.count(": trained") == 2
    assert list(api.scores(str(out))["iid"]) == [f"{NAME}:calm"]


@pytest.mark.usefixtures("two_seeds")
def test_models(bw: Cli, out: Path, two: Callable[..., None]) -> None:
    two(METHODS, "-0.1, 0.1", "-0.2, 0.2")
    for folder in "ab":
        told = train(bw, out, "finetune", settings=("--set", f"baselines.model={folder}/{NAME}:net"))
        assert told.code == 0, told.err
    assert list(api.scores(str(out))["iid"]) == [f"finetune, model = {NAME}:net", f"finetune, model = b/{NAME}:net"]


@pytest.mark.parametrize(
    ("benchmark", "example", "edit", "name", "settings"),
    [
        ("kowl", "predictors", ("uid", "ids"), "FarFromMeans", ["--set", "evaluation.settings={FILES}", "--protocol", "1"]),
        ("two_camera", "estimators", ("axis=0", "axis=(0,)"), "mean_light", []),
    ],
    ids=["predictors", "estimators"],
)
def test_predictors_and_estimators(
    bw: Cli,
    finished: Callable[[str], Path],
    tmp_path: Path,
    two: Callable[..., None],
    benchmark: str,
    example: str,
    edit: tuple[str, str],
    name: str,
    settings: list[str],
) -> None:
    two(EXAMPLES[example], *edit)
    out = Path(shutil.copytree(finished(benchmark), tmp_path / benchmark))
    files = [f"{folder}/{NAME}:{name}" for folder in "ab"]
    limits = ", ".join(f"'{file}'={{limit={limit}}}" for limit, file in enumerate(files, 1))
    told = bw("train", out, *(each.replace("FILES", limits) for each in settings), "--method", files[0], "--method", files[1])
    assert told.code == 0, told.err
    found = {one.facts["method"]: one.facts["settings"] for one in finished_trainings(str(out)) if one.facts["method"] in files}
    assert not settings or found[files[1]]["predictor"] == {"limit": 2}
    lines = {line for methods in api.scores(str(out)).values() for line in methods}
    assert {line.partition(",")[0] for line in lines} == {f"{NAME}:{name}", files[1]}


def test_names_of_references(tmp_path: Path) -> None:
    files = [tmp_path / folder / "m.py" for folder in ("x/a", "y/a", "y/b")]
    known: dict[str, str] = {}
    for number, file in enumerate(files):
        file.parent.mkdir(parents=True)
        file.write_text(f"number = {number}")
        known[f"{file}:f"] = name_apart(f"{file}:f", known)
    assert [*known.values()] == ["m.py:f", "a/m.py:f", "b/m.py:f"]
    assert name_apart(f"{files[0]}:g", known) == "m.py:g"
    (tmp_path / "z/a").mkdir(parents=True)
    (tmp_path / "z/a/m.py").write_text("number = 3")
    assert name_apart(f"{tmp_path}/z/a/m.py:f", known) == "z/a/m.py:f"


def test_settings_are_those_of_the_file_whose_folders_fit() -> None:
    tables = {"a/m.py:f": 1, "b/m.py:f": 2}
    assert [settings_for(f"/home/{folder}/m.py:f", tables, 0) for folder in "ab"] == [1, 2]
    assert settings_for("/home/c/m.py:f", {**tables, "m.py:f": 3}, 0) == 3
    assert settings_for("/home/c/m.py:f", {"a/m.py:f": 1}, 0) == 1
    with pytest.raises(WrongUse, match=r"'a/m.py:f' and of 'b/m.py:f' both fit '/home/c/m.py:f'"):
        settings_for("/home/c/m.py:f", tables, 0)
