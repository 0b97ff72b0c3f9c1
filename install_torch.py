"""Take the small build of torch where it will do: `make install` calls this before it installs anything that needs torch.

On Linux the index of Python's packages offers torch with several GB of libraries for NVIDIA's GPUs, also to machines without
one; PyTorch's own index offers the build for processors alone. With ``TORCH=default`` in the environment nothing is chosen.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import threading
import urllib.request

INDEX = os.environ.get("TORCH_INDEX") or "https://download.pytorch.org/whl/cpu"
PATIENCE_S = 5.0
"""Until PyTorch's index is taken to be out of reach."""


def main() -> None:
    """Install torch and torchvision for processors, or say in one line why not. Never fails: pip goes on without it."""
    if os.environ.get("TORCH") == "default":
        print("torch: the default build, as TORCH=default asks")
    elif platform.system() != "Linux":
        print("torch: the default build, which has no CUDA on this system")
    elif has_nvidia_gpu():
        print("torch: the default build, as there is an NVIDIA GPU (TORCH=cpu takes the one for processors)")
    elif not answers(f"{INDEX}/torch/"):
        print(f"torch: no NVIDIA GPU, and {INDEX} does not answer: the build that pip's own index has")
    elif installed():
        print(f"torch: no NVIDIA GPU, so the build for processors, from {INDEX}")
    else:
        print(f"torch: no NVIDIA GPU, and {INDEX} has none that fits: the build that pip's own index has")


def has_nvidia_gpu() -> bool:
    """Whether the driver lists one; not where the environment asks for TORCH=cpu."""
    if os.environ.get("TORCH") == "cpu":
        return False
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return listed.returncode == 0 and "GPU" in listed.stdout


def answers(url: str) -> bool:
    """Whether a page is there, within a few seconds. The name is looked up in a thread, as nothing else limits how long."""
    found: list[int] = []

    def ask() -> None:
        try:
            with urllib.request.urlopen(url, timeout=PATIENCE_S) as page:
                found.append(page.status)
        except (OSError, ValueError):
            pass

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    return bool(found)


def installed() -> bool:
    """Install the two; what they need comes with the rest, in the versions of constraints.txt."""
    command = [sys.executable, "-m", "pip", "install", "-qq", "--no-deps", "--retries", "1", "--index-url", INDEX]
    return subprocess.run([*command, "torch", "torchvision"], stderr=subprocess.DEVNULL).returncode == 0


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)  # a thread may still be looking up a name
