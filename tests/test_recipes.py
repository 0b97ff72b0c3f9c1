"""The files of ``docs/examples/cluster``: they are read, and their commands are parsed by the programs that they call."""

from __future__ import annotations

import contextlib
import json
import shlex
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
    assert parsed([*services["client"]["entrypoint"], *services["client"]["command"]])
    minio, ours = services["minio"]["environment"], services["worker"]["environment"]
    assert (ours["AWS_ACCESS_KEY_ID"], ours["AWS_SECRET_ACCESS_KEY"]) == (
        minio["MINIO_ROOT_USER"],
        minio["MINIO_ROOT_PASSWORD"],
    )
    assert ours.items() <= services["scheduler"]["environment"].items()
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
    assert f"EXTRAS={args['EXTRAS']}" in (FOLDER / "kubernetes.yaml").read_text()


def test_kubernetes() -> None:
    cluster, autoscaler, group = yaml.safe_load_all((FOLDER / "kubernetes.yaml").read_text())
    assert [each["kind"] for each in (cluster, autoscaler, group)] == ["DaskCluster", "DaskAutoscaler", "DaskWorkerGroup"]
    name = cluster["metadata"]["name"]
    assert {autoscaler["spec"]["cluster"], group["spec"]["cluster"]} == {name}
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
    for each in yaml.safe_load_all((FOLDER / "kubernetes.yaml").read_text()):
        jsonschema.validate({"spec": each["spec"]}, closed(schemas[each["kind"]]))
        with pytest.raises(jsonschema.ValidationError, match="misspelt"):
            jsonschema.validate({"spec": each["spec"] | {"misspelt": 1}}, closed(schemas[each["kind"]]))


def test_helm_values() -> None:
    values = yaml.safe_load((FOLDER / "helm_values.yaml").read_text())
    assert parsed(["dask", "scheduler", *values["scheduler"]["extraArgs"]])["dashboard"] is False
    assert parsed(["dask", "worker", "tcp://x:1", *values["worker"]["extraArgs"]])["memory_limit"] == "4GiB"
    secret = {each["name"]: each["valueFrom"]["secretKeyRef"] for each in values["worker"]["env"]}
    assert all(name == one["key"] for name, one in secret.items())
    of_compose = yaml.safe_load((FOLDER / "compose.yaml").read_text())["services"]["worker"]["environment"]
    assert secret.keys() == of_compose.keys() - {"AWS_DEFAULT_REGION"}
    assert [name for name, one in secret.items() if one.get("optional")] == ["AWS_ENDPOINT_URL"]
    cluster = next(yaml.safe_load_all((FOLDER / "kubernetes.yaml").read_text()))
    assert values["scheduler"]["env"] == cluster["spec"]["scheduler"]["spec"]["containers"][0]["env"]


def test_slurm() -> None:
    pytest.importorskip("dask_jobqueue")
    recipe = module_of(FOLDER / "slurm.py")
    local = {"host": "127.0.0.1", "dashboard": False, "dashboard_address": "127.0.0.1:0", "allowed_failures": 100}
    with contextlib.closing(recipe.slurm_cluster(gpu=True, queue="gpu", scheduler_options=local)) as cluster:
        *head, begin = cluster.job_script().strip().splitlines()
        address = cluster.scheduler_address
    assert {"#SBATCH -p gpu", "#SBATCH --requeue", "#SBATCH --gres=gpu:1", "#SBATCH -t 04:00:00"} <= {*head}
    words = shlex.split(begin)
    assert words[1:3] == ["-m", "distributed.cli.dask_worker"]
    worker = parsed(["dask", "worker", *words[3:]])
    assert (worker["scheduler"], worker["resources"], worker["nthreads"], worker["lifetime"]) == (address, "GPU=1", 1, "230m")
