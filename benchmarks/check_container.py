"""Build the container of the Dockerfile and run what it is for; without an engine carry out its steps in a clean root folder.

    python benchmarks/check_container.py                          # docker or podman, where one answers
    sudo python benchmarks/check_container.py --root /tmp/root    # debootstrap makes a Debian there: FROM, and then each step

In a root folder (Linux, as root, with debootstrap) every RUN line runs by chroot in a mount namespace of its own, in an empty
environment but for ENV and ARG; COPY copies what git tracks. ``--bind`` shows it folders and files of this machine, such as a
mirror of packages, read-only; ``--ca`` has it trust a certificate, ``--env`` gives it variables. The folder stays, and a step
that was done is not done again.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
MIRROR = "http://deb.debian.org/debian"
REPORT = "run/report.html"
"""What the demo leaves in the folder that is given to it."""


@dataclass(frozen=True)
class Step:
    """An instruction of a Dockerfile.

    >>> Step("RUN", "apt-get update").keyword
    'RUN'
    """

    keyword: str
    rest: str


def read_steps(text: str) -> Iterator[Step]:
    """The instructions, in order; lines that end with a backslash go on in the next."""
    for line in text.replace("\\\n", " ").splitlines():
        if line.strip() and not line.startswith("#"):
            keyword, _, rest = line.strip().partition(" ")
            yield Step(keyword, rest.strip())


@dataclass
class State:
    """What the steps before one have set."""

    args: dict[str, str] = field(default_factory=dict[str, str])
    env: dict[str, str] = field(default_factory=dict[str, str])
    folder: str = "/"
    command: list[str] = field(default_factory=list[str])

    def take(self, step: Step, given: Mapping[str, str]) -> None:
        """Enter a step that sets something."""
        if step.keyword == "ARG":
            name, _, default = step.rest.partition("=")
            self.args[name] = given.get(name, default)
        elif step.keyword == "ENV":
            self.env |= dict(word.split("=", 1) for word in shlex.split(step.rest))
        elif step.keyword == "WORKDIR":
            self.folder = step.rest
        elif step.keyword == "CMD":
            self.command = json.loads(step.rest)
        elif step.keyword not in ("FROM", "COPY", "RUN"):
            raise SystemExit(f"Dockerfile: {step.keyword} is not understood here")


def engine() -> str:
    """``docker`` or ``podman``, if one answers; "" for neither."""
    for name in ("docker", "podman"):
        if shutil.which(name) and subprocess.run([name, "info"], capture_output=True).returncode == 0:
            return name
    return ""


def by_engine(name: str, out: Path, given: Mapping[str, str]) -> None:
    """Build the image and run it."""
    more = [word for key, value in given.items() for word in ("--build-arg", f"{key}={value}")]
    subprocess.run([name, "build", "--tag", "benchwright", *more, HERE], check=True)
    subprocess.run([name, "run", "--rm", "--volume", f"{out.resolve()}:/out", "benchwright"], check=True)


def by_steps(
    root: Path, given: Mapping[str, str], binds: Sequence[str], env: Mapping[str, str], authorities: Sequence[Path]
) -> None:
    """Carry out the steps in a root folder, and the command at last; ``done`` beside the folder says which are."""
    state, noted = State(), root.with_name(f"{root.name}.done")
    done = noted.read_text().split() if noted.exists() else []
    chain = hashlib.sha256()
    for step in read_steps((HERE / "Dockerfile").read_text()):
        chain.update(f"{step.keyword} {step.rest} {sorted(given.items())}".encode())
        state.take(step, given)
        if chain.hexdigest() in done:
            continue
        begun = time.monotonic()
        if step.keyword == "FROM":
            subprocess.run(
                ["debootstrap", "--variant=minbase", "bookworm", root, MIRROR], check=True, stdout=subprocess.DEVNULL
            )
            trusted = root / "usr/local/share/ca-certificates"  # taken up when ca-certificates is installed
            trusted.mkdir(parents=True, exist_ok=True)
            for file in authorities:
                shutil.copyfile(file, trusted / file.name)
        elif step.keyword == "COPY":
            copy_tracked(root / step.rest.split()[1].lstrip("/"))
        elif step.keyword == "RUN":
            inside(root, state, step.rest, binds, env)
        if step.keyword in ("FROM", "COPY", "RUN"):
            print(f"{time.monotonic() - begun:7.0f} s  {step.keyword} {step.rest[:90]}", flush=True)
            done.append(chain.hexdigest())
            noted.write_text("\n".join(done))
    begun = time.monotonic()
    inside(root, state, shlex.join(state.command), binds, env)
    print(f"{time.monotonic() - begun:7.0f} s  CMD {shlex.join(state.command)}", flush=True)


def copy_tracked(target: Path) -> None:
    """What git tracks, as it is in the working tree."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=HERE, capture_output=True, check=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(HERE / name, target / name)


def inside(root: Path, state: State, command: str, binds: Sequence[str], env: Mapping[str, str]) -> None:
    """Run a shell command with ``root`` as the whole file system. Nothing of this machine can be written from there."""
    devices = " ".join(("null", "zero", "full", "random", "urandom"))
    mounts = [
        f"cd {shlex.quote(str(root))}",
        "mount -t proc proc proc",
        "mount -t tmpfs tmpfs dev",
        f"for name in {devices}; do touch dev/$name && mount --bind /dev/$name dev/$name || exit 1; done",
        "mkdir -m 1777 dev/shm",
    ]
    for place in ("/etc/resolv.conf", *binds):
        there = root / place.lstrip("/")
        there.parent.mkdir(parents=True, exist_ok=True)
        there.mkdir(exist_ok=True) if Path(place).is_dir() else there.touch()
        # Packages write where they please: /etc/ssl/certs of the machine itself, if it were shown to them as it is.
        mounts.append(f"mount --bind {shlex.quote(place)} {shlex.quote(str(there))}")
        mounts.append(f"mount -o remount,bind,ro {shlex.quote(str(there))}")
    (root / state.folder.lstrip("/")).mkdir(parents=True, exist_ok=True)
    given = [
        f"{name}={value}" for name, value in {"HOME": "/root", "PATH": os.defpath, **state.args, **state.env, **env}.items()
    ]
    moved = f"cd {shlex.quote(state.folder)} && {command}"
    chroot = shlex.join(["chroot", str(root), "/usr/bin/env", "-i", *given, "/bin/sh", "-c", moved])
    script = " && ".join([*mounts, f"exec {chroot}"])
    subprocess.run(["unshare", "--mount", "--pid", "--fork", "sh", "-c", script], check=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, help="carry out the steps in this folder, although or as there is no engine")
    parser.add_argument("--out", type=Path, default=Path("container-out"), help="folder of the demo, with an engine")
    parser.add_argument("--build-arg", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--bind", action="append", default=[], metavar="PATH")
    parser.add_argument("--ca", type=Path, action="append", default=[], metavar="FILE.crt")
    parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE")
    asked = parser.parse_args()
    given, env = (dict(word.split("=", 1) for word in words) for words in (asked.build_arg, asked.env))
    if asked.root is None:
        if not (name := engine()):
            print("neither docker nor podman answers: give --root FOLDER, as root and with debootstrap", file=sys.stderr)
            return 1
        by_engine(name, asked.out, given)
        report = asked.out / REPORT
    else:
        by_steps(asked.root.resolve(), given, asked.bind, env, asked.ca)
        report = asked.root / "out" / REPORT
    print(f"{report}: {report.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
