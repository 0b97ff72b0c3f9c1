"""The files of ``docs/examples/cluster``: they are read, and their commands are parsed by the programs that they call."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pytest
import typer
from benchwright.pipelines.cli.main import app

from tests.curation.test_store_s3 import bucket, endpoint
from tests.files import module_of

__all__ = ["bucket", "endpoint"]

yaml = pytest.importorskip("yaml")
pytest.importorskip("distributed")

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "examples" / "cluster"


def parsed(words: list[str]) -> dict[str, Any]:
    """What a command makes of its words. Raises ``click.UsageError`` for those that it does not know."""
    from distributed.cli import dask_scheduler, dask_worker

    program, name, *rest = words
    given = {"dask": {"scheduler": dask_scheduler.main, "worker": dask_worker.main}}
    given["benchwright"] = getattr(typer.main.get_command(app), "commands")  # noqa: B009
    return given[program][name].make_context(name, [str(word) for word in rest]).params


def test_compose(bucket: str) -> None:
    services = yaml.safe_load((FOLDER / "compose.yaml").read_text())["services"]
    assert parsed(services["scheduler"]["command"])["port"] == "8786"
    worker = parsed(services["worker"]["command"])
    assert (worker["scheduler"], worker["nthreads"], worker["memory_limit"]) == ("tcp://scheduler:8786", 1, "4GiB")
    assert services["worker"]["deploy"] == {"replicas": 3}
    assert services["scheduler"]["restart"] == services["worker"]["restart"] == "always"  # a worker ends with its scheduler
    assert parsed([*services["client"]["entrypoint"], *services["client"]["command"]])
    minio, ours = services["minio"]["environment"], services["worker"]["environment"]
    assert (ours["AWS_ACCESS_KEY_ID"], ours["AWS_SECRET_ACCESS_KEY"]) == (
        minio["MINIO_ROOT_USER"],
        minio["MINIO_ROOT_PASSWORD"],
    )
    assert ours.items() <= services["scheduler"]["environment"].items()
    assert services["scheduler"]["environment"]["DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES"] == "10"
    context, dockerfile = services["worker"]["build"]["context"], (FOLDER / "../../../Dockerfile").resolve()
    assert (FOLDER / context).resolve() == dockerfile.parent
    assert dockerfile.is_file()
    *python, code = services["bucket"]["command"]
    assert python == ["python", "-c"]
    for _ in range(2):  # also where it is there
        exec(code, {})
    assert fsspec.filesystem("s3").exists("runs")


@pytest.mark.parametrize("name", ["compose.yaml", "kubernetes.yaml", "helm_values.yaml"])
def test_commands_in_comments(name: str) -> None:
    text = (FOLDER / name).read_text().replace("\\\n#", "")
    for line in (line for line in text.splitlines() if line.startswith("#") and " run " in line and "--out" in line):
        words = shlex.split(line.partition(" run " if "benchwright run" in line else "client ")[2].partition("`")[0])
        words = words if words[0] == "run" else ["run", *words]
        assert parsed(["benchwright", *("clear" if word == "..." else word for word in words)])


def test_extras_of_the_image() -> None:
    import tomllib

    known = tomllib.loads((FOLDER / "../../../pyproject.toml").read_text())["project"]["optional-dependencies"]
    args = yaml.safe_load((FOLDER / "compose.yaml").read_text())["services"]["worker"]["build"]["args"]
    assert {*args["EXTRAS"].split(",")} <= known.keys()
    kubernetes = (FOLDER / "kubernetes.yaml").read_text()
    assert f"--build-arg EXTRAS={args['EXTRAS']}" in kubernetes
    assert "--build-arg TORCH=cuda" in kubernetes  # the Dockerfile's default has no CUDA


def test_kubernetes() -> None:
    cluster, group = yaml.safe_load_all((FOLDER / "kubernetes.yaml").read_text())
    autoscaler = yaml.safe_load((FOLDER / "kubernetes_autoscaler.yaml").read_text())
    kinds = [
        "DaskCluster",
        "DaskWorkerGroup",
        "DaskAutoscaler",
    ]  # the last in a file of its own: it would close workers of the group
    assert [each["kind"] for each in (cluster, group, autoscaler)] == kinds
    name = cluster["metadata"]["name"]
    assert {autoscaler["spec"]["cluster"], group["spec"]["cluster"]} == {name}
    assert autoscaler["spec"]["minimum"] == cluster["spec"]["worker"]["replicas"]
    pods = (cluster["spec"]["scheduler"]["spec"], cluster["spec"]["worker"]["spec"], group["spec"]["worker"]["spec"])
    assert all(pod.get("restartPolicy", "Always") == "Always" for pod in pods)  # a worker ends with its scheduler
    service = cluster["spec"]["scheduler"]["service"]
    assert service["selector"] == {"dask.org/cluster-name": name, "dask.org/component": "scheduler"}
    (scheduler,) = cluster["spec"]["scheduler"]["spec"]["containers"]
    ports = {each["name"]: each["containerPort"] for each in scheduler["ports"]}
    assert [ports[each["targetPort"]] for each in service["ports"]] == [8786, 8787]
    assert parsed(scheduler["args"])["dashboard_address"] == f":{ports[scheduler['readinessProbe']['httpGet']['port']]}"
    found = [parsed(each["spec"]["worker"]["spec"]["containers"][0]["args"])["resources"] for each in (cluster, group)]
    assert found == [None, "GPU=1"]


def test_kubernetes_against_the_definitions_of_the_operator() -> None:
    """No field that the operator does not know: the API server would drop it without a word.

    ``crds.json`` has the ``openAPIV3Schema`` of each kind in dask-kubernetes 2026.3.0, without descriptions. The package itself
    brings 21 others and 210 MB.
    """
    jsonschema = pytest.importorskip("jsonschema")

    def closed(schema: Any) -> Any:
        if isinstance(schema, list):
            return [closed(each) for each in schema]
        if not isinstance(schema, dict):
            return schema
        more = {} if "properties" not in schema else {"additionalProperties": False}
        return more | {name: closed(each) for name, each in schema.items()}

    schemas = json.loads((Path(__file__).parent / "fixtures/dask_kubernetes/crds.json").read_text())
    files = [FOLDER / "kubernetes.yaml", FOLDER / "kubernetes_autoscaler.yaml"]
    for each in (each for file in files for each in yaml.safe_load_all(file.read_text())):
        jsonschema.validate({"spec": each["spec"]}, closed(schemas[each["kind"]]))
        with pytest.raises(jsonschema.ValidationError, match="misspelt"):
            jsonschema.validate({"spec": each["spec"] | {"misspelt": 1}}, closed(schemas[each["kind"]]))


def test_helm_values() -> None:
    text = (FOLDER / "helm_values.yaml").read_text()
    values = yaml.safe_load(text)
    _, check, _ = text.partition("grep -E ")[2].split("'", 2)
    found = [
        bool(re.search(check, f"            - {each}")) for each in ("dask-worker", '"dask-worker"', "dask", "x-dask-scheduler")
    ]
    assert found == [True, True, False, False]
    assert parsed(["dask", "scheduler", *values["scheduler"]["extraArgs"]])["dashboard"] is False
    assert parsed(["dask", "worker", "tcp://x:1", *values["worker"]["extraArgs"]])["memory_limit"] == "4GiB"
    secret = {each["name"]: each["valueFrom"]["secretKeyRef"] for each in values["worker"]["env"]}
    assert all(name == one["key"] for name, one in secret.items())
    of_compose = yaml.safe_load((FOLDER / "compose.yaml").read_text())["services"]["worker"]["environment"]
    assert secret.keys() == of_compose.keys() - {"AWS_DEFAULT_REGION"}
    assert [name for name, one in secret.items() if one.get("optional")] == ["AWS_ENDPOINT_URL"]
    cluster = next(yaml.safe_load_all((FOLDER / "kubernetes.yaml").read_text()))
    assert values["scheduler"]["env"] == cluster["spec"]["scheduler"]["spec"]["containers"][0]["env"]


HERE = {"host": "127.0.0.1", "dashboard": False, "dashboard_address": "127.0.0.1:0"}


def test_slurm() -> None:
    pytest.importorskip("dask_jobqueue")
    recipe = module_of(FOLDER / "slurm.py")
    with contextlib.closing(recipe.slurm_cluster(hours=6, queue="long", scheduler_options=HERE)) as cluster:
        *head, begin = cluster.job_script().strip().splitlines()
        address = cluster.scheduler_address
    assert {"#SBATCH -p long", "#SBATCH --requeue", "#SBATCH -t 06:00:00"} <= {*head}
    words = shlex.split(begin)
    assert words[1:3] == ["-m", "distributed.cli.dask_worker"]
    worker = parsed(["dask", "worker", *words[3:]])
    assert (worker["scheduler"], worker["resources"], worker["nthreads"], worker["lifetime"]) == (address, None, 1, "350m")


SBATCH = """#!/bin/sh
cp "$1" "$0.$$"
cat "$1" >> "$(dirname "$0")/jobs"
setsid sh "$0.$$" > /dev/null 2>&1 < /dev/null &
echo Submitted batch job $!
"""


def test_slurm_with_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs of both kinds, by commands that stand in for Slurm's; one that is lost is replaced by one of its kind."""
    pytest.importorskip("dask_jobqueue")
    import dask

    recipe = module_of(FOLDER / "slurm.py")
    for name, text in (("sbatch", SBATCH), ("scancel", "#!/bin/sh\nkill -9 -$1\n")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)

    def found() -> dict[str, tuple[str, dict[str, float]]]:
        """Addresses of the workers, and what they offer, by kind."""
        workers = cluster.scheduler.workers.values()
        return {"gpu" if str(each.name) == "gpu-0" else "cpu": (each.address, dict(each.resources)) for each in workers}

    def wait_for(holds: Callable[[], bool]) -> None:
        give_up = time.monotonic() + 90
        while not holds():
            assert time.monotonic() < give_up
            time.sleep(0.1)

    with (
        dask.config.set({"distributed.deploy.lost-worker-timeout": "1s"}),
        recipe.slurm_cluster(scheduler_options=HERE) as cluster,
    ):
        recipe.submit(cluster, 1, 1, queue="gpu")
        wait_for(lambda: len(found()) == 2)
        assert {kind: offered for kind, (_, offered) in found().items()} == {"cpu": {}, "gpu": {"GPU": 1}}
        first = found()
        subprocess.run([tmp_path / "scancel", cluster.workers["gpu-0"].job_id], check=True)
        wait_for(lambda: len(found()) == 2 and found()["gpu"][0] != first["gpu"][0])
        assert found()["gpu"][1] == {"GPU": 1}
        assert found()["cpu"] == first["cpu"]
    jobs = (tmp_path / "jobs").read_text()
    assert jobs.count("--gres=gpu:1") == jobs.count("-p gpu") == 2
    assert jobs.count("--requeue") == 3
