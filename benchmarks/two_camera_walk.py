"""Every estimator of ``folders.toml`` on drawn DNG pairs in two folders: from raw files to errors, one command after the other.

    python benchmarks/two_camera_walk.py OUT [--pairs 12] [--size 336 252] [--set a.b=value ...]

The pairs are those of ``make_phone_pairs.py``: drawn scenes, each with a light and a ColorChecker, two cameras whose T does not
depend on the light. So networks have nothing to learn; what is shown is that each estimator is trained, tested and reported, or
skipped with its reason. Networks go 100 epochs.
"""

from __future__ import annotations

import argparse
import re
import shutil
import time
from pathlib import Path

import benchwright as bw
from benchwright.pipelines import api
from make_phone_pairs import make_pairs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--size", type=int, nargs=2, default=(336, 252))
    parser.add_argument("--set", nargs="*", default=[])
    given = parser.parse_args()
    began = time.process_time()
    phone, out = Path(given.out) / "phone", str(Path(given.out) / "run")
    drawn = Path(given.out) / "drawn"
    make_pairs(drawn, pictures=None, pairs=given.pairs, size=tuple(given.size), seed=0)
    for camera, name in enumerate(("main", "wide")):
        (phone / name).mkdir(parents=True, exist_ok=True)
        for file in sorted(drawn.glob(f"*_CAM_{camera}.dng")):
            shutil.copy(file, phone / name / f"{file.name.split('_')[1]}.dng")
    charts = (drawn / "charts.csv").read_text("utf-8")
    (phone / "charts.csv").write_text(re.sub(r"RAW_(\d+)_CAM_0", r"main/\1", charts), "utf-8")
    places = [f"source.root={phone}", "source.chart=listed", "source.charts=charts.csv"]
    quick = [
        f"evaluation.networks.{name}.settings={{ epochs = 100 }}" for name in ("network-200", "network-470", "network-1460")
    ]
    quick += ["evaluation.networks.network-200-without.settings={ epochs = 100 }"]
    job = bw.job("two_camera", config="folders", overrides=[*places, *quick, *given.set])
    bw.run(job, out)
    bw.train(out)
    found = api.scores(out)["rotating"]
    for method, scores in sorted(found.items(), key=lambda each: each[1]["mean"]["mean"]):
        print(f"{method}: {scores['mean']['mean']:.2f} degrees")
    evaluation = job.config.evaluation
    print(f"{len(found)} of {len(evaluation.baselines) + len(evaluation.networks)} have errors")
    for what, why in api.skipped(out).items():
        print(f"skipped {what}: {why}")
    print(f"{time.process_time() - began:.0f} CPU seconds; {api.report(out)}")


if __name__ == "__main__":
    main()
