"""Table 2 on thumbnails of NUS, camera by camera: every estimator of ``nus64.toml`` beside the published row.

    python benchmarks/two_camera_nus64.py --pictures DATA/nus64 --sensitivities DATA/spectra/nus_cameras --out nus64

The first camera is the paper's; ``--cameras`` names others. Each is a run of its own in a folder of ``--out``, which
``benchwright report`` shows; what is up to date is not trained again. Published rows are of other pictures: see REPRODUCED.md.

``--fast`` takes minutes for all eight cameras. Every estimator is run. Networks and learners of pictures learn from what was
taken alone, linear regression from some six re-illuminated rows of T beside each in place of 99 (nine are drawn, and those with
the light of a test picture left out); networks are trained by Levenberg-Marquardt with weight decay, three seeds, in place of
the paper's training, which takes days.
"""

from __future__ import annotations

import argparse
import posixpath
from collections.abc import Sequence

import benchwright as bw
from benchwright.datasets.two_camera.facts import STATISTICS, facts
from benchwright.pipelines.training_results import mean_scores
from benchwright.pipelines.two_camera.paper import row_of
from benchwright.pipelines.two_camera.pipeline import BENCHMARK

CAMERAS = (
    "NikonD5200", "Canon1DsMkIII", "Canon600D", "FujifilmXM1", "OlympusEPL6", "PanasonicGX1", "SamsungNX2000", "SonyA57",
)  # fmt: skip

_DECAYED = "parameters = {}, preset = 'decayed', settings = {{ decay = {} }}, seeds = [0, 1, 2], augmented = false"
FAST = (
    "augmentation.count=9",
    "augmentation.targets=any",
    "evaluation.relit_pictures=0",
    "evaluation.networks={ "
    + ", ".join(
        f"network-{size} = {{ {_DECAYED.format(size, decay)} }}" for size, decay in ((200, 1.0), (470, 0.1), (1460, 0.001))
    )
    + " }",
)
"""Settings of ``--fast``; the decays are those of S20."""


_NAMES = ("mean", "median", "best_25", "worst_25", "q1", "q3")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", required=True)
    parser.add_argument("--sensitivities", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--cameras", nargs="*", default=CAMERAS)
    parser.add_argument("--fast", action="store_true", help="minutes in place of days: see above")
    parser.add_argument("--methods", nargs="*", default=[], help="these alone; what was trained before is shown, too")
    parser.add_argument("--set", nargs="*", default=[], help="further settings, as of benchwright run")
    given = parser.parse_args()
    fast = FAST if given.fast else ()
    found: dict[str, dict[str, dict[str, float]]] = {}
    for camera in given.cameras:
        second = "Canon1DsMkIII" if camera != "Canon1DsMkIII" else "NikonD5200"
        places = [f"source.pictures={given.pictures}", f"source.sensitivities={given.sensitivities}"]
        changes = [*places, f"source.main={camera}", f"source.second={second}", *fast, *given.set]
        out = posixpath.join(given.out, camera)
        bw.run(bw.job("two_camera", config="nus64", overrides=changes), out)
        bw.train(out, methods=given.methods)
        for method, scores in mean_scores(out, BENCHMARK.shown)["rotating"].items():
            found.setdefault(method, {})[camera] = scores["mean"]
    published = {method: facts().tables["nus"].get(row_of(method.replace("network-", "ours-"))) for method in found}
    for camera in given.cameras:
        print(f"\n| {camera}: {', '.join(STATISTICS)} | ours | Table 2 |\n| --- | --- | --- |")
        for method, mine in sorted(found.items(), key=lambda item: item[1].get(camera, {}).get("mean", 99)):
            if camera in mine:
                print(f"| {method} | {_six([mine[camera][name] for name in _NAMES])} | {_six(published[method] or ())} |")
    print("\n| method, means | Table 2 |", *(f"{camera} |" for camera in given.cameras))
    print("| --- " * (2 + len(given.cameras)) + "|")
    for method, mine in found.items():
        row = published[method]
        cells = [f"{mine[camera]['mean']:.2f}" if camera in mine else "" for camera in given.cameras]
        print(f"| {method} | {f'{row[0]:.2f}' if row else ''} |", *(f"{cell} |" for cell in cells))


def _six(numbers: Sequence[float]) -> str:
    return " / ".join(f"{number:.2f}" for number in numbers)


if __name__ == "__main__":
    main()
