"""Run a tiny benchmark on a real Slurm, by docs/examples/cluster/slurm.py, and compare its digests with one process's.

    sudo apt-get install slurmctld slurmd slurm-client munge && pip install dask-jobqueue
    sudo python benchmarks/check_slurm.py [--name skeleton] [--jobs 2]

Starts munge, slurmctld and slurmd on loopback with a configuration of their own in a temporary folder, has the recipe submit
jobs, runs the benchmark and its trainings on their workers, and cancels one of the jobs with ``scancel`` while it computes a
part. Nothing is left behind. Exits with 1 where a digest differs.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cluster_kills import digests

HERE = Path(__file__).resolve().parents[1]
TIMEOUT_S = 120

CONFIGURATION = """
ClusterName=one
SlurmctldHost={host}(127.0.0.1)
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
SlurmUser=root
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
MpiDefault=none
NodeName={host} NodeAddr=127.0.0.1 CPUs=16 RealMemory=262144 State=UNKNOWN
PartitionName=all Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


@contextlib.contextmanager
def slurm(folder: Path) -> Iterator[None]:
    """A Slurm of one node, which the commands of this process and its children find by ``SLURM_CONF``."""
    for name in ("state", "spool"):
        (folder / name).mkdir()
    with contextlib.ExitStack() as sockets:
        free = [sockets.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1] for _ in range(2)]
    key, configuration = folder / "munge.key", folder / "slurm.conf"
    key.write_bytes(secrets.token_bytes(1024))
    key.chmod(0o600)
    host = socket.gethostname().partition(".")[0]
    configuration.write_text(CONFIGURATION.format(host=host, folder=folder, ports=free))
    os.environ["SLURM_CONF"] = str(configuration)
    options = {"key-file": key, "socket": folder / "munge.socket", "pid-file": folder / "munge.pid"}
    options |= {"log-file": folder / "munged.log", "seed-file": folder / "munge.seed"}
    munged = ["munged", "--foreground", "--force", *(f"--{name}={value}" for name, value in options.items())]
    with contextlib.ExitStack() as daemons:
        for command in (munged, ["slurmctld", "-D"], ["slurmd", "-D"]):
            daemon = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            daemons.callback(daemon.wait)
            daemons.callback(daemon.terminate)
        wait_for(lambda: "idle" in told("sinfo", "--noheader", "--format=%t"), "the node to be idle")
        yield
        told("scancel", "--full", "--user=root")
        wait_for(lambda: not told("squeue", "--noheader"), "the jobs to end")


def told(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def wait_for(holds: Any, what: str) -> None:
    """Raises ``TimeoutError``."""
    until = time.monotonic() + TIMEOUT_S
    while not holds():
        if time.monotonic() > until:
            raise TimeoutError(f"waited {TIMEOUT_S} s for {what}")
        time.sleep(0.2)


def recipe() -> Any:
    """The module ``docs/examples/cluster/slurm.py``."""
    spec = importlib.util.spec_from_file_location("slurm_recipe", HERE / "docs/examples/cluster/slurm.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def cancel_one_at_work(cluster: Any, ended: threading.Event, cancelled: list[str]) -> None:
    """Cancel the job of the first worker that computes a part."""
    while not ended.wait(0.05):
        for worker in list(cluster.scheduler.workers.values()):
            jobs = {str(job.name): str(job.job_id) for job in list(cluster.workers.values())}
            if worker.processing and (number := jobs.get(str(worker.name))):
                told("scancel", "--signal=KILL", "--full", number)
                cancelled.append(number)
                return


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--name", default="skeleton", help="the benchmark whose tiny configuration is run")
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    if missing := [name for name in ("munged", "slurmctld", "slurmd", "sbatch") if shutil.which(name) is None]:
        print(f"not installed: {', '.join(missing)}", file=sys.stderr)
        return 2
    command = [str(Path(sys.executable).with_name("benchwright"))]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        outs = [str(folder / "one"), str(folder / "jobs")]
        for step in (["run", args.name, "--config", "tiny", "--out", outs[0]], ["train", outs[0]]):
            subprocess.run([*command, *step, "-q"], check=True, stdout=subprocess.DEVNULL)
        cancelled: list[str] = []
        with slurm(folder), recipe().slurm_cluster(log_directory=str(folder)) as cluster:
            cluster.scale(jobs=args.jobs)
            wait_for(lambda: len(cluster.scheduler.workers) == args.jobs, "workers")
            cluster.adapt(minimum_jobs=args.jobs, maximum_jobs=args.jobs)  # submits another job for one that is lost
            ended = threading.Event()
            canceller = threading.Thread(target=cancel_one_at_work, args=(cluster, ended, cancelled))
            canceller.start()
            try:
                scheduler = ["--scheduler", cluster.scheduler_address, "-q"]
                for step in (["run", args.name, "--config", "tiny", "--out", outs[1]], ["train", outs[1]]):
                    subprocess.run([*command, *step, *scheduler], check=True, stdout=subprocess.DEVNULL)
            finally:
                ended.set()
                canceller.join()
            version = told("sinfo", "--version").strip()
        verified = subprocess.run([*command, "verify", outs[1]], stdout=subprocess.DEVNULL, check=False).returncode == 0
        one, jobs = (digests(out) for out in outs)
    same = sum(one[stage] == digest for stage, digest in jobs.items())
    print(
        f"{version}, {args.jobs} jobs, {len(cancelled)} cancelled at work: {same} of {len(one)} digests of {args.name} equal, "
        f"verify {'OK' if verified else 'FAILED'}"
    )
    return 0 if same == len(one) and verified and cancelled else 1


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main())
