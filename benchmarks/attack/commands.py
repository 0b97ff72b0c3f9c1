"""What commands read beside sources: answers of annotators, settings, files of weights, the folder of a run and its shards."""

from __future__ import annotations

import functools
import io
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from . import hostile_arrays, hostile_tables, valid
from .parser import Parser, Told, Tree


@functools.cache
def run_folder(name: str, *settings: str, train: str = "") -> Path:
    """A finished tiny run, made once a process; trained by one method where ``train`` names it."""
    from benchwright.pipelines import api

    out = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=os.environ.get("ATTACK_SCRATCH")))
    api.run(api.job(name, config="tiny", overrides=settings), str(out), scheduler="sync")
    if train:
        api.train(str(out), methods=[train])
    return out


_SMALL = ("source.count=120", "retrieval.candidates=10", "retrieval.per_class=5", "choice.per_class=3", "buckets.rule.count=2")


@functools.cache
def _asked() -> Path:
    return run_folder("clear", *_SMALL, 'qa.votes="imported"')


RESULTS = "results.json"


def _copy(of: Path, to: Path) -> Path:
    """A copy whose files may be written over: links would lead back."""
    return Path(shutil.copytree(of, to, dirs_exist_ok=True))


# ------------------------------------------------------------------------------------------------------------- answers


def _questions() -> list[tuple[str, str]]:
    from benchwright.curation.qa.rounds import asked_rows
    from benchwright.pipelines import api

    out = str(_asked())
    rows = asked_rows(api.job_of(out).rounds()[""], out)[1].table(["key", "concept"]).to_pylist()
    return [(row["key"], row["concept"]) for row in rows[:6]]


def _mturk() -> Tree:
    head = [
        "AssignmentId",
        "WorkerId",
        "AssignmentStatus",
        "Input.ID",
        "Input.query",
        "WorkTimeInSeconds",
        "Answer.taskAnswers",
    ]
    rows = [
        [f"A{n}{w}", f"W{w}", "Approved", key, concept, 12, f'[{{"image": {{"labels": ["{concept}"]}}}}]']
        for n, (key, concept) in enumerate(_questions())
        for w in range(3)
    ]
    return {"r.csv": valid.table([head, *rows])}


def _label_studio() -> Tree:
    tasks = [
        {
            "data": {"key": key, "image": "x", "bucket": 1},
            "annotations": [
                {
                    "completed_by": worker,
                    "lead_time": 3.5,
                    "was_cancelled": False,
                    "result": [
                        {"from_name": "labels", "value": {"choices": [concept]}},
                        {"from_name": "sensitive", "value": {"choices": ["No"]}},
                    ],
                }
                for worker in range(3)
            ],
        }
        for key, concept in _questions()
    ]
    return {"r.json": valid.text(tasks)}


def _import(name: str, folder: Path, out: Path) -> Told:
    from benchwright.pipelines import api

    _copy(_asked(), out)
    done = api.qa_import(str(out), [str(folder / name)], salt="attack")
    return Told(done.added, done.rejects)


def _gold(folder: Path, out: Path) -> Told:
    from benchwright.pipelines import api

    _copy(_asked(), out)
    return Told(len(api.qa_export(str(out), gold=str(folder / "g.csv"), gold_per_batch=1)))


def _votes(folder: Path, out: Path) -> Told:
    from benchwright.pipelines import api

    _copy(_asked(), out)
    (out / "qa").mkdir(exist_ok=True)
    shutil.copy(folder / "votes.parquet", out / "qa/votes.parquet")
    done = api.run(api.job("clear", config="tiny", overrides=[*_SMALL, 'qa.votes="imported"']), str(out), scheduler="sync")
    return Told(done.result.rows)


def _voted() -> Tree:
    votes = next((run_folder("clear", *_SMALL) / "qa").glob("votes-*.parquet"))
    return {"votes.parquet": votes.read_bytes()}


# ------------------------------------------------------------------------------------------------------------ settings


def _settings_tree() -> Tree:
    from importlib.resources import files

    return {"s.toml": (files("benchwright.pipelines.clear") / "tiny.toml").read_bytes()}


def _settings(folder: Path, out: Path) -> Told:
    from benchwright.pipelines import api

    return Told(len(api.plan(api.job("clear", config=str(folder / "s.toml")), str(out))))


# ---------------------------------------------------------------------------------------------------------- run folders


def _finished() -> Path:
    return run_folder("two_camera", "source.pairs=40", "evaluation.networks={}", train="linear_regression")


def _place(pattern: str) -> Path:
    """A file of the finished run; ``RESULTS``: a record of what was measured, wherever such records lie."""
    out = _finished()
    found = sorted(out.glob("*/**/*.json" if pattern == RESULTS else pattern))
    if pattern == RESULTS:
        found = [path for path in found if path.relative_to(out).parts[0] not in ("stages", "dataset") and path.name[0] != "."]
    return found[0].relative_to(out)


def _file_of_run(pattern: str) -> Callable[[], Tree]:
    return lambda: {"file": (_finished() / _place(pattern)).read_bytes()}


def _look(pattern: str, folder: Path, out: Path) -> Told:
    """The commands that read a run, over one with a changed file; each may refuse, and one refusal is passed on."""
    from benchwright.pipelines import api

    place = _place(pattern)
    _copy(_finished(), out)
    (out / place).unlink()
    shutil.copytree(folder, out / "attacked", symlinks=True)
    (out / "attacked/file").rename(out / place)
    shutil.rmtree(out / "attacked")
    refused: Exception | None = None
    looks: list[Callable[[], object]] = [
        lambda: api.show(str(out)),
        lambda: api.verify(str(out)),
        lambda: list(api.rejects(str(out))),
        lambda: api.scores(str(out)),
        lambda: api.compare(str(_finished()), str(out)),
        lambda: api.plan(api.job_of(str(out)), str(out)),
        lambda: _read_shards(out / "dataset"),
    ]
    for look in looks:
        try:
            look()
        except (ValueError, OSError, RuntimeError, KeyError) as error:
            refused = error if refused is None or worse(error) else refused
            if worse(error):
                raise
    if refused is not None:
        raise refused
    return Told()


def worse(error: BaseException) -> bool:
    """Whether an error is one that nobody has put into words; see ``judged.is_leak``."""
    from .judged import is_leak

    return is_leak(error)


def _read_shards(dataset: Path) -> None:
    from benchwright.datasets.reader.dataset import ShardDataset
    from benchwright.datasets.reader.index import DatasetIndex

    for _ in ShardDataset(DatasetIndex.open(str(dataset)), seed=0, batch_size=8):
        pass


def _run_file(name: str, pattern: str, *, text: bool = False, packed: str = "") -> Parser:
    return Parser(
        name,
        _file_of_run(pattern),
        "file",
        functools.partial(_look, pattern),
        text=text,
        packed=packed,
        specials=hostile_tables.run_files(pattern),
        share=0.5,
    )


# -------------------------------------------------------------------------------------------------------------- weights


def _backbone(kind: str, file: str, allowed: bool, folder: Path, out: Path) -> Told:
    """Features by a backbone of one's own, as the stage of extraction takes them of a clip."""
    from benchwright.curation.flow import Flow, source, step
    from benchwright.curation.run import run
    from benchwright.datasets.features.backbones import Backbone

    from . import steps

    backbone = Backbone(
        kind,  # type: ignore[arg-type]
        model="squeezenet1_1" if kind == "state_dict" else "",
        head="classifier",
        run_code_from_weights=allowed,
    )
    flow: Flow = source("clips", step(steps.clips)).each(
        "vectors", step(steps.vector, backbone=backbone, checkpoint=str(folder / file))
    )
    done = run(flow, str(out), scheduler="sync")
    return Told(done.result.rows)


def _script() -> Tree:
    import torch

    class Net(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.mean(dim=(2, 3))

    out = io.BytesIO()
    torch.jit.save(torch.jit.script(Net()), out)
    return {"b.pt": out.getvalue()}


def _state(*, safe: bool = False) -> Tree:
    import torch
    from benchwright.curation.encoders.torchvision_compat import ensure_torchvision

    ensure_torchvision()
    from torchvision import models

    torch.manual_seed(0)
    state = models.get_model("squeezenet1_1", weights=None).state_dict()
    if safe:
        from safetensors.torch import save

        return {"b.safetensors": save(state)}
    return {"b.pth": valid.torch_file(state)}


def parsers() -> list[Parser]:
    """All of them."""
    gold = {
        "g.csv": valid.table([["file", "class_name"], ["a.png", "red"], ["b.png", "blue"]]),
        **{f"{n}.png": valid.picture("PNG", n) for n in "ab"},
    }
    return [
        Parser(
            "MTurk results",
            _mturk,
            "r.csv",
            functools.partial(_import, "r.csv"),
            text=True,
            specials=hostile_tables.lines("r.csv"),
        ),
        Parser(
            "Label Studio results",
            _label_studio,
            "r.json",
            functools.partial(_import, "r.json"),
            text=True,
            specials=hostile_tables.json_files("r.json"),
        ),
        Parser(
            "gold questions", lambda: dict(gold), "g.csv", _gold, text=True, specials=hostile_tables.lines("g.csv"), share=0.3
        ),
        Parser("votes, Parquet", _voted, "votes.parquet", _votes, specials=hostile_tables.parquet("votes.parquet"), share=0.3),
        Parser("settings, TOML", _settings_tree, "s.toml", _settings, text=True, specials=hostile_tables.toml("s.toml")),
        _run_file("run.json", "run.json", text=True),
        _run_file("artifact.json", "stages/drawn/artifact.json", text=True),
        _run_file("rows of a stage", "stages/measured/part-00000.parquet"),
        _run_file("dataset.json", "dataset/dataset.json", text=True),
        _run_file("index of shards", "dataset/*.parquet"),
        _run_file("shard", "dataset/*.tar", packed="tar"),
        _run_file("stored results", RESULTS, text=True),
        Parser(
            "TorchScript",
            _script,
            "b.pt",
            functools.partial(_backbone, "torchscript", "b.pt", False),
            specials=hostile_arrays.scripts("b.pt"),
            share=0.2,
            forbidden=True,
        ),
        Parser(
            "TorchScript, allowed",
            _script,
            "b.pt",
            functools.partial(_backbone, "torchscript", "b.pt", True),
            packed="zip",
            share=0.3,
        ),
        Parser(
            "state dict",
            _state,
            "b.pth",
            functools.partial(_backbone, "state_dict", "b.pth", False),
            packed="zip",
            specials=hostile_arrays.torch_files("b.pth"),
            share=0.2,
        ),
    ]
