"""Table 1 of CLEAR's paper: its methods by one name, their settings, and what is refused before a run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import benchwright as core
import pytest
from benchwright.curation.registry import load_name
from benchwright.pipelines.clear.baselines import _method, settings_of
from benchwright.pipelines.config import ConfigError
from benchwright.pipelines.jobs import job
from benchwright.pipelines.listing import list_names
from benchwright.training.baselines.clear import expanded, method_groups, paper_methods, paper_settings
from benchwright.training.core.build import parts_of
from benchwright.training.core.capacity import Capacity
from benchwright.training.methods.registry import METHODS
from benchwright.training.models.linear import linear

from .conftest import Cli

pytestmark = pytest.mark.usefixtures("blank_figures")

NAMES = ["ewc", "si", "lwf", "cwr", "gdumb", "er", "agem"]
NAMES += ["reservoir-alpha=1.0-finetune", "dynamic_reservoir-alpha=1.0-finetune"]

# What the paper's text, section 6 of its supplement and Table 1 say of each row.
PAPER: dict[str, dict[str, Any]] = {
    "ewc": {"strength": 0.4, "online": True},
    "si": {"strength": 0.0001},
    "lwf": {"temperature": 1.0, "form": "as_released"},
    "cwr": {"form": "as_released"},
    "gdumb": {"memory": "balanced_reservoir"},
    "er": {"memory": "reservoir"},
    "agem": {"memory": "reservoir", "sample": "capacity"},
    "reservoir-alpha=1.0-finetune": {"alpha": 1.0, "start": "finetune"},
    "dynamic_reservoir-alpha=1.0-finetune": {"alpha": 1.0, "start": "finetune"},
}


@pytest.mark.parametrize("name", NAMES)
def test_every_row_has_the_papers_settings(name: str) -> None:
    own, settings = paper_methods()[name]
    assert own == name.partition("-")[0]
    assert settings.items() >= PAPER[name].items()
    _, shared = paper_settings("linear")
    made = parts_of({**shared, "method": settings}, load_name(METHODS, own), linear, labels="one", classes="same")
    assert made.memory == Capacity("first_position")  # 2310 of the iid protocol, 3300 of the streaming one
    assert made.memory.resolved(2310).number == 2310


def test_lwf_has_the_papers_list_of_strengths() -> None:
    strength = paper_methods()["lwf"][1]["strength"]
    assert strength == pytest.approx([2 / 11 * step for step in range(12)], abs=1e-15)
    assert (strength[0], strength[-1]) == (0, 2)


def test_gdumb_of_the_paper_did_not_keep_the_first_bucket_for_ever() -> None:
    """Of one training set for all models, In-domain is the mean of BwT and FwT, each a mean of the same ten accuracies."""

    def gap(in_domain: float, backward: float, forward: float) -> float:
        return in_domain - (backward + forward) / 2

    assert gap(86.7, 87.9, 85.4) == pytest.approx(0.05)  # Nap of Table 4, which is so: the digits end at 0.1
    assert gap(85.5, 85.5, 84.3) == pytest.approx(0.6)  # GDumb of Table 1, linear
    assert gap(66.0, 68.9, 61.4) == pytest.approx(0.85)  # ResNet-18


def test_a_group_stands_for_its_methods_in_order_and_each_once() -> None:
    assert method_groups()["table1"] == NAMES
    assert expanded(["er", "table1", "ewc", "mine.py:calm"]) == ["er", *(n for n in NAMES if n != "er"), "mine.py:calm"]
    assert len(expanded(["table2"])) == 8
    assert len(expanded(["table6"])) == 1 + 2 + 2 * 8
    assert set(expanded(method_groups())) <= set(paper_methods())


def test_a_group_is_listed_with_the_methods(bw: Cli) -> None:
    row = next(row for row in list_names("methods") if row["name"] == "table1")
    assert row["summary"] == f"A group: {', '.join(NAMES)}"
    assert "clear" in row["fits"]
    assert "table1" in bw("list", "methods").out
    assert "table1" in bw("train", "--help").out


@pytest.mark.usefixtures("two_seeds")
def test_table_1_is_trained_by_its_name_under_both_protocols(bw: Cli, tmp_path: Path) -> None:
    out = tmp_path / "run"
    few = ["--set", "baselines.epochs=1", "--set", 'baselines.methods=["er", "table1"]']
    assert bw("run", "clear", "--config", "tiny", *few, "--out", out, "--quiet").code == 0
    scores = core.train(str(out))
    trained = ["er", *(name for name in NAMES if name != "er")]
    assert {protocol: list(those) for protocol, those in scores.items()} == {"iid": trained, "streaming": trained}
    assert {each["runs"] for those in scores.values() for each in those.values()} == {2}
    told = bw("train", out, "--method", "table1").err
    assert told.count("up to date") == 2 * 9 * 2, "the group is the same on the command line"
    page = Path(bw("report", out).out.strip()).read_text()
    table = page.partition(">Baselines, both protocols</h2>")[2].partition("</table>")[0]
    assert re.findall(r"<th scope=\"row\"[^>]*>([^<]*)</th>", table) == NAMES, "the order of the paper's table"
    headings = re.findall(r"<th scope=\"col\"[^>]*>([^<]*)</th>", table)
    iid, streaming = ["in-domain", "next-domain", "acc", "bwt", "fwt"], ["next-domain", "fwt"]
    assert headings == ["method", *(f"iid {m}" for m in iid), *(f"streaming {m}" for m in streaming)]
    assert "the CLEAR paper" not in page


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ('baselines.methods=["tabel1"]', r"baselines.methods.0 = 'tabel1': no method .*did you mean 'table1', 'table6' or '"),
        ("baselines.preset=linaer", r"baselines.preset = 'linaer': there are linear, .*small_resnet; did you mean 'linear'\?"),
        ("baselines.model=lineer", "baselines.model = 'lineer': no model 'lineer'.*did you mean 'linear'"),
        ("encoder={kind='open_clip', model='RN50x', weights='openai'}", "encoder.model = 'RN50x': .* did you mean 'RN50x4'"),
    ],
)
def test_an_unknown_name_is_refused_before_anything_runs_and_never_recorded(
    bw: Cli, tmp_path: Path, setting: str, told: str
) -> None:
    out = tmp_path / "run"
    done = bw("run", "clear", "--config", "tiny", "--set", setting, "--out", out)
    assert done.code == 2
    assert re.search(told, done.err)
    assert done.err.count("\n") == 1
    assert not out.exists()


def test_a_wrong_group_is_refused_by_train(bw: Cli, tiny: Path) -> None:
    done = bw("train", tiny, "--method", "table3")
    assert done.code == 2
    assert "no method 'table3': see `benchwright list methods`, or name your own as path/to/file.py:NAME" in done.err
    assert done.err.endswith("; did you mean 'table6', 'table2' or 'table1'?\n")
    assert len(done.err) < 220
    assert not (tiny / "experiments").exists()


def test_settings_of_a_method_reach_it_by_a_former_name_and_by_its_file_without_folders(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("def calm(**settings): ...\n")
    own = "baselines.method_settings={'mine.py:calm'={a=1}, replay={b=2}}"
    config = job("clear", config="tiny", overrides=[own, f"baselines.methods=['{file}:calm', 'replay']"]).config
    calm, er = (_method(config, name)[1] for name in config.baselines.methods)
    assert calm == {"a": 1}
    assert er == {**paper_methods()["er"][1], "b": 2}


@pytest.mark.parametrize(
    ("benchmark", "method", "value"),
    [
        ("clear", "ewcc", "{strength=1}"),
        ("iirc", "icarl_cn", "{schedule={epochs=1}}"),
        ("vclimb", "icarll+tc", "{schedule={epochs=1}}"),
        ("two_camera", "grey_world", "{}"),
    ],
)
def test_settings_of_a_method_that_there_is_not_are_refused(benchmark: str, method: str, value: str) -> None:
    place = "baselines" if benchmark == "clear" else "evaluation"
    with pytest.raises(
        ConfigError, match=f"{place}.method_settings = .*no (method|estimator) '.*(there are|see) .*did you mean '"
    ):
        job(benchmark, config="tiny", overrides=[f"{place}.method_settings={{'{method}'={value}}}"])


def test_a_report_of_a_run_that_waits_says_for_what(bw: Cli, tmp_path: Path) -> None:
    out = tmp_path / "run"
    waits = bw("run", "clear", "--config", "tiny", "--set", "qa.votes=imported", "--out", out, "--quiet").out
    page = Path(bw("report", out).out.strip()).read_text()
    [told] = re.findall("It is waiting: ([^<]*)[.]<", page)
    assert told == waits.partition("the run is waiting: ")[2].strip()


def test_other_settings_of_a_training_leave_the_dataset_alone(tiny: Path, bw: Cli) -> None:
    told = bw("train", tiny, "--set", "choice.per_class=3")
    assert (told.code, told.err.count("\n")) == (2, 1)
    assert "choice.per_class: this would change the dataset" in told.err
    told = bw("train", tiny, "--set", "baselines.features=pixels")
    assert "model 'linear' takes vectors or signals, but samples here are images" in told.err


@pytest.mark.parametrize(
    ("config", "features", "changes", "rate"),
    [
        ("clear10_release", "moco_b0", [], 1.0),
        ("clear10_release", "imagenet", [], 0.1),
        ("clear10_release", "imagenet", ["baselines.preset=mlp"], 0.1),
        ("clear10_release", "imagenet", ["baselines.learning_rate=0.5"], 0.5),
        ("published", "imagenet_rn50", ["features.imagenet_rn50.weights=resnet50.pth"], 0.1),
        ("published", "moco_imagenet_rn50", ["features.moco_imagenet_rn50.weights=moco.pth"], 1.0),
        ("published", "imagenet_rn50", ["features.imagenet_rn50.encoder.kind=colours"], 1.0),
    ],
)
def test_features_of_imagenets_labels_are_learned_from_at_their_own_rate(
    config: str, features: str, changes: list[str], rate: float
) -> None:
    """Supplement, section 6: 1.0 for the linear layer, "the only exception" 0.1; 0.1 for the MLP on all features."""
    places = ["source.metadata=x"] if config == "published" else ["source.root=x", 'source.features=["moco_b0", "imagenet"]']
    c = job("clear", config=config, overrides=[*places, f"baselines.features={features}", *changes]).config
    assert settings_of(c)[1]["schedule"]["learning_rate"] == rate
