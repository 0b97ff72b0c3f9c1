"""CLEAR learned from pixels: every method of Table 1, all buckets at once, other networks, several processes, and refusals."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import benchwright as core
import polars as pl
import pytest
import torch
from benchwright.curation.nested import flat
from benchwright.pipelines.clear import baselines
from benchwright.pipelines.clear.paper import why_not_its_settings
from benchwright.pipelines.training_results import finished_trainings
from benchwright.training.baselines.clear import method_groups, paper_methods, paper_settings
from benchwright.training.core.schedule import Schedule

from .conftest import Cli
from .forked import forked

pytestmark = pytest.mark.usefixtures("blank_figures")

VIEW = "view={side_px=8, resize_px=8}"
SMALL = f'baselines={{preset="small_resnet", methods=["table1"], epochs=1, {VIEW}}}'


@pytest.fixture
def run(copy: Path) -> Path:
    shutil.rmtree(copy / "experiments", ignore_errors=True)
    return copy


def values(out: Path) -> pl.DataFrame:
    return pl.DataFrame(core.results(str(out)))


def test_resnet18_has_the_papers_settings() -> None:
    """Supplement, section 6: "70 epochs with a batch size of 64, SGD ..., momentum 0.9 and weight decay of 1e-5, initial
    learning rate of 0.01, ... decay by a factor of 0.1 every 30 epochs"; Resize(224), RandomCrop(224), RandomHorizontalFlip."""
    model, settings = paper_settings("resnet18")
    assert (model, settings["model"]["backbone"], settings["features"]) == ("pictures", "resnet18", "pixels")
    plan = Schedule(**{**settings["schedule"], "plateau": None})
    assert (plan.epochs, plan.batch_size, plan.momentum, plan.weight_decay) == (70, 64, 0.9, 1e-5)
    optimiser = plan.make([torch.zeros(1, requires_grad=True)])
    rates: list[float] = []
    for epoch in range(70):
        plan.decay(optimiser, epoch)
        rates.append(optimiser.param_groups[0]["lr"])
    assert rates == pytest.approx([0.01] * 30 + [0.001] * 30 + [0.0001] * 10)
    view = settings["view"]
    assert (view["side_px"], view["resize_px"], view["augment"], view["resize"]) == (224, 224, "window_flip", "as_released")
    for preset in ("linear", "linear_imagenet", "mlp"):
        shallow = paper_settings(preset)[1]
        assert shallow["schedule"]["decay_after_epochs"] == 60
        assert "decay_every_epochs" not in shallow["schedule"]
        assert "view" not in shallow
    assert paper_methods("resnet18")["agem"][1]["at_once"] == 64
    assert paper_methods("linear")["agem"][1]["at_once"] == paper_methods()["agem"][1]["at_once"] == "all"


def test_all_of_table_1_is_learned_from_pixels_and_all_buckets_at_once(
    run: Path, bw: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(baselines, "SEEDS", (0,))  # of five: 19 trainings each
    told = bw("train", run, "--method", "table1", "--method", "joint", "--set", SMALL)
    assert told.code == 0, told.err
    found = values(run)
    trained = {(p, m): n for p, m, n in found.group_by("protocol", "method").agg(pl.col("seed").n_unique()).rows()}
    names = method_groups()["table1"]
    assert trained == {**{(p, m): 1 for p in ("iid", "streaming") for m in names}, ("offline", "joint"): 1}
    offline = found.filter(protocol="offline", seed=0)
    whole = offline.filter(pl.col("position").is_null())
    buckets = offline.filter(position=1)
    assert whole["metric"].to_list() == ["accuracy"]
    assert buckets["tested"].to_list() == ["1", "2", "3"]
    assert whole["value"][0] == pytest.approx(buckets["value"].mean(), abs=0.01)  # test sets of nearly one size
    page = Path(bw("report", run).out.strip()).read_text()
    table = page.partition(">Baselines, both protocols</h2>")[2].partition("</table>")[0]
    assert all(name in table for name in names)
    assert "Trained on all buckets at once" in page
    assert re.search(r"^offline +accuracy$", bw("eval", run).out, re.MULTILINE)
    assert bw("verify", run).code == 0


@pytest.mark.usefixtures("two_seeds")
def test_joint_is_of_the_protocol_offline_alone(run: Path, bw: Cli) -> None:
    quick = ("--set", "baselines.epochs=1")
    told = bw("train", run, "--protocol", "offline", "--method", "ewc", *quick)
    assert (told.code, told.err.count("\n")) == (2, 1)
    assert "protocol offline trains on all buckets at once: it takes only method 'joint', not 'ewc'" in told.err
    assert bw("train", run, "--protocol", "offline", *quick).code == 0
    assert {(one.facts["protocol"], one.facts["method"]) for one in finished_trainings(str(run))} == {("offline", "joint")}
    one = values(run).filter(pl.col("position").is_null(), seed=0)
    assert one["value"][0] > 0.5
    told = bw("train", run, "--protocol", "ofline")
    assert re.search(r"no protocol 'ofline': there are iid, streaming, offline, .*did you mean 'offline'", told.err)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ("preset=resnet18 features=embedding", r"features = 'embedding': backbone 'resnet18' for vectors"),
        ("features=pixels", "model 'linear' takes vectors or signals, but samples here are images"),
        ("preset=resnet18 model_settings.backbone=vgg", "baselines.model_settings.*backbone 'vgg'.*there are resnet18"),
        ("preset=small_resnet model=backbone", "^benchwright: baselines.model_settings.name is missing: there are name, head"),
        ("preset=resnet18 view.side_px=300", "baselines.view: side 300 px of 224 px"),
        (
            "preset=resnet18 view.side=30",
            "baselines.view: side = 30: there is no such setting: there are side_px, .*; did you mean 'side_px'",
        ),
        (
            "preset=resnet18 view.resize=longest",
            "^benchwright: baselines.view: resize = 'longest': expected 'as_released' or 'as_written'",
        ),
        (
            "preset=resnet18 weights=w.pt",
            "baselines.weights: model 'pictures' takes no weights: name another",
        ),
        ("decay_after_epochs=2 decay_every_epochs=3", "decay_after_epochs or decay_every_epochs: one of them"),
        ("method_settings.agem.at_once=0", "^benchwright: baselines.method_settings.agem: .*at_once 0: 'all', or >= 1"),
        (
            "preset=small_resnet method_settings.agem.at_once_=2",
            "^benchwright: baselines.method_settings.agem.at_once_ = 2: there is no such setting: .*; did you mean 'at_once'",
        ),
    ],
)
def test_what_does_not_fit_is_told_in_one_line(run: Path, bw: Cli, settings: str, told: str) -> None:
    sets = [word for each in settings.split() for word in ("--set", f"baselines.{each}")]
    done = bw("train", run, "--method", "agem", *sets)
    assert (done.code, done.err.count("\n")) == (2, 1), done.err
    assert re.search(told, done.err), done.err


@pytest.mark.usefixtures("two_seeds")
def test_settings_of_the_file_that_stay_beside_another_preset_are_told(run: Path, bw: Cli) -> None:
    own = ["--set", "baselines.learning_rate=0.05", "--set", "baselines.epochs=1"]
    sets = ["--set", "baselines.preset=mlp", *own, "-m", "finetune", "-p", "streaming"]
    told = bw("train", run, *sets)
    assert told.code == 0
    assert told.err.splitlines()[0] == (
        "benchwright: warning: baselines.preset = 'mlp': settings in the file override the preset: batch_size = 32 (the "
        "preset: 256), decay_after_epochs = 8 (the preset: 60); --set changes them, "
        "and a whole table baselines={...} replaces them"
    )
    [line] = [one for one in finished_trainings(str(run)) if one.facts["model"] == "mlp" and one.facts["seed"] == 0]
    rates = [line.facts["settings"]["schedule"][name] for name in ("learning_rate", "epochs", "batch_size")]
    assert rates == [0.05, 1, 32]
    assert "warning" not in bw("train", run, *own, "-m", "finetune", "-p", "streaming").err, "the preset is the file's"


def test_compiling_needs_a_compiler(run: Path, bw: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "none-such")
    told = bw("train", run, "--method", "finetune", "--set", "baselines.compile=true")
    assert (told.code, told.err.count("\n")) == (2, 1)
    assert "compile: there is no C++ compiler 'none-such' here: install one, or leave compile out" in told.err


@pytest.mark.usefixtures("two_seeds")
def test_any_network_by_name_with_weights_from_a_file(run: Path, tmp_path: Path, bw: Cli) -> None:
    from benchwright.training.models.backbone import backbone

    network, _ = backbone("timm/resnet10t", torch.Generator().manual_seed(7), sample=(3, 32, 32))
    file = tmp_path / "weights.pt"
    torch.save(network.state_dict(), file)

    def sets(**more: str) -> list[str]:
        given = {
            "preset": '"small_resnet"',
            "methods": '["finetune"]',
            "epochs": "1",
            "model": '"backbone"',
            "model_settings": '{name="timm/resnet10t"}',
            "view": "{side_px=32, resize_px=32}",
            **more,
        }
        return ["--set", f"baselines={{{', '.join(f'{key}={value}' for key, value in given.items())}}}"]

    known = ("train", run, "--protocol", "streaming")
    told = bw(*known, *sets(weights=json.dumps(str(file))))
    assert told.code == 0, told.err
    [digest] = {one.facts["settings"]["weights"] for one in finished_trainings(str(run))}
    assert len(digest) == 64
    again = bw(*known, *sets(weights=json.dumps(str(file))))
    assert again.err.count("up to date") == 2
    for weights, wanted in ((str(tmp_path / "none.pt"), "No such file"), ("hub://none", "has no weights 'none': there are")):
        told = bw(*known, *sets(weights=json.dumps(weights)))
        assert (told.code, told.err.count("\n")) == (2, 1)
        assert f"baselines.weights = '{weights}'" in told.err
        assert wanted in told.err
    told = bw(*known, "--method", "finetun", *sets(weights='"hub://none"'))  # before the weights are looked for
    assert "no method 'finetun'" in told.err
    file.write_bytes(b"damaged")
    told = bw(*known, *sets(weights=json.dumps(str(file))))
    assert told.code == 1
    assert told.err.splitlines()[-1].count("does not contain the weights of timm/resnet10t") == 1


def test_pictures_that_cannot_be_learned_from(run: Path, bw: Cli) -> None:
    shard = next((run / "dataset").glob("*.tar"))
    data = bytearray(shard.read_bytes())
    at = data.index(b"BM")
    data[at : at + 64] = bytes(64)
    shard.write_bytes(data)
    told = bw("train", run, "--method", "finetune", "--protocol", "streaming", "--set", SMALL)
    assert told.code == 1
    assert "Traceback" not in told.err
    last = told.err.splitlines()[-1]
    assert re.search(r"member \S+ of \d+ bytes cannot be decoded", last), last


def test_torchrun_gives_what_one_process_gives(run: Path, tmp_path: Path, bw: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    both = Path(shutil.copytree(run, tmp_path / "both"))
    words = ("--method", "er", "--protocol", "streaming", "--set", SMALL)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    torchrun += ["--no-python", sys.executable, "-P", "-m", "benchwright.pipelines.cli.main", "train", both, *words]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(torchrun, capture_output=True, text=True, timeout=600, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.count("streaming") == 1, "one process tells"
    assert bw("train", run, *words).code == 0
    found = [[one for _, one in core.predictions(str(out))] for out in (run, both)]
    for here, there in zip(*found, strict=True):
        a, b = (
            [[each["loss"] for each in json.loads(row)["epochs"]] for row in rows.table()["record"].to_pylist() if row]
            for rows in (here, there)
        )
        assert len(a) == 2
        for one, other in zip(a, b, strict=True):
            assert one == pytest.approx(other, rel=1e-3)
    assert bw("verify", both).code == 0
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setenv("MASTER_PORT", str(free.getsockname()[1]))
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    again: dict[Path, BaseProcess] = {}
    for rank in ("0", "1"):
        with monkeypatch.context() as each:
            each.setenv("RANK", rank)
            each.setenv("LOCAL_RANK", rank)
            again[tmp_path / rank] = forked("train", both, *words, err=tmp_path / rank)
    for process in again.values():
        process.join(600)
    assert [process.exitcode for process in again.values()] == [0, 0]
    assert "".join(err.read_text() for err in again).count("up to date") == 5, "one process tells"
    refused = bw("train", both, "--method", "der", "--set", "baselines.method_settings.der={alpha=1.0, beta=1.0}")
    assert refused.code == 2
    assert "the loss of method 'der' is not a mean over rows: train it without torchrun" in refused.err


def test_the_papers_figures_stand_beside_the_papers_settings_alone() -> None:
    class Told:
        label = method = "er"
        protocol, model = "iid", "pictures"
        settings: dict[str, Any]

    def recorded(preset: str, **changes: Any) -> dict[str, Any]:
        return flat({**paper_settings(preset)[1], "method": paper_methods(preset)["er"][1]}) | changes

    line: Any = Told()
    line.settings = recorded("resnet18")
    assert why_not_its_settings(line, "pixels") == ""
    line.settings = recorded("resnet18", **{"view.resize": "as_written"})
    assert why_not_its_settings(line, "pixels") == "settings of the paper were changed: view.resize"
    line.settings = recorded("small_resnet")
    assert "the paper has no figures of reduced_resnet on" in why_not_its_settings(line, "pixels")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU that torch can use")
def test_a_gpu_gives_what_the_cpu_gives_to_rounding(run: Path, tmp_path: Path, bw: Cli) -> None:
    other = Path(shutil.copytree(run, tmp_path / "gpu"))
    words = ("--method", "finetune", "--protocol", "streaming", "--set", SMALL, "--set", "baselines.learning_rate=0.001")
    assert bw("train", run, *words).code == 0
    assert bw("train", other, *words, "--set", "encoder_run.device=cuda").code == 0
    here, there = (values(out).filter(metric="accuracy")["value"].to_numpy() for out in (run, other))
    assert abs(here - there).mean() < 0.05
    half = bw("train", other, *words, "--set", "encoder_run.device=cuda", "--set", "baselines.mixed_precision=true")
    assert half.code == 0, half.err
