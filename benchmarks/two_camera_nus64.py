"""Table 2 on thumbnails of NUS, camera by camera: every estimator of ``nus64.toml`` beside the published row.

    python benchmarks/two_camera_nus64.py --pictures DATA/nus64 --sensitivities DATA/spectra/nus_cameras --out nus64

The first camera is the paper's; ``--cameras`` names others. Each is a run of its own in a folder of ``--out``, which
``benchwright report`` shows; what is up to date is not trained again. Published rows are of other pictures: see REPRODUCED.md.
"""

from __future__ import annotations

import argparse
import posixpath

import benchwright as bw
from benchwright.datasets.two_camera.facts import facts
from benchwright.pipelines.experiments import mean_scores
from benchwright.pipelines.two_camera.paper import row_of
from benchwright.pipelines.two_camera.pipeline import BENCHMARK

CAMERAS = (
    "NikonD5200", "Canon1DsMkIII", "Canon600D", "FujifilmXM1", "OlympusEPL6", "PanasonicGX1", "SamsungNX2000", "SonyA57",
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", required=True)
    parser.add_argument("--sensitivities", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--cameras", nargs="*", default=CAMERAS)
    parser.add_argument("--set", nargs="*", default=[], help="further settings, as of benchwright run")
    given = parser.parse_args()
    means: dict[str, dict[str, float]] = {}
    for camera in given.cameras:
        second = "Canon1DsMkIII" if camera != "Canon1DsMkIII" else "NikonD5200"
        places = [f"source.pictures={given.pictures}", f"source.sensitivities={given.sensitivities}"]
        job = bw.job(
            "two_camera", config="nus64", overrides=[*places, f"source.main={camera}", f"source.second={second}", *given.set]
        )
        out = posixpath.join(given.out, camera)
        bw.run(job, out)
        bw.train(out)
        for method, scores in mean_scores(out, BENCHMARK.shown)["rotating"].items():
            means.setdefault(method, {})[camera] = scores["mean"]["mean"]
            if camera == given.cameras[0]:
                numbers = [scores["mean"][name] for name in ("mean", "median", "best_25", "worst_25", "q1", "q3")]
                print(f"{method}: {' '.join(f'{number:.2f}' for number in numbers)}")
    published = facts().tables["nus"]
    print("| method | Table 2 |", *(f"{camera} |" for camera in given.cameras))
    print("| --- " * (2 + len(given.cameras)) + "|")
    for method, mine in sorted(means.items(), key=lambda item: item[1].get(given.cameras[0], 99)):
        row = published.get(row_of(method))
        cells = [f"{row[0]:.2f}" if row else "", *(f"{mine[camera]:.2f}" if camera in mine else "" for camera in given.cameras)]
        print(f"| {method} |", *(f"{cell} |" for cell in cells))


if __name__ == "__main__":
    main()
