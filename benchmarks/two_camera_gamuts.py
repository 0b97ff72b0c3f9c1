"""What single pictures do to the gamuts of a two-camera run: errors of every setting with and without them.

    python benchmarks/two_camera_gamuts.py RUN [--relit 0 9] [--without KEY ...]

RUN is one of ``two_camera_nus64.py``, a camera's folder. Without ``--without`` it names the pictures whose colours, divided by
their lights, reach farthest beyond white; with it these are left out of training, as are re-illuminated ones that show them or
have their lights. Tests stay whole.
"""

from __future__ import annotations

import argparse

import numpy as np
from benchwright.eval.protocols.cross_validation import rotating_folds
from benchwright.pipelines.two_camera import learning
from benchwright.training.illuminants.choice import _spread
from benchwright.training.illuminants.pictures import unit
from benchwright.training.illuminants.registry import candidates, estimator


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("--relit", type=int, nargs="*", default=(0, 9))
    parser.add_argument("--without", nargs="*", default=[])
    given = parser.parse_args()
    dataset = f"{given.run}/dataset"
    rows = learning.dataset_rows(dataset, "", "1to2")
    pictures, at = learning.pictures_of(dataset, "", None)
    changes, of = learning.changes_of(dataset, "")
    if not given.without:
        lights = rows.gt[rows.original]
        seen = [pictures.images[at[key]] / light for key, light in zip(rows.pair[rows.original], lights, strict=True)]
        reach = np.array([each.max() for each in seen])
        for row in np.argsort(-reach)[:5]:
            place = np.unravel_index(seen[row].argmax(), seen[row].shape)
            told = f"{reach[row]:.2f} of white, row {place[0]}, column {place[1]}, {'RGB'[place[2]]}"
            print(f"{rows.pair[rows.original][row]}: {told}")
    for name in ("gamut_pixel", "gamut_edge"):
        for setting in estimator(*candidates()[name]).settings:
            for count in given.relit:
                errors = []
                for fold in rotating_folds(rows, reveal_test=True):
                    mine = fold.measured_train & ~np.isin(fold.pair_train, given.without)
                    relit = _spread(fold, count)
                    shown, under = fold.pair_train[relit], fold.light_train[relit]
                    keep = ~(np.isin(shown, given.without) | np.isin(under, given.without))
                    relit, shown, under = relit[keep], shown[keep], under[keep]
                    learned, gt = pictures[[at[key] for key in fold.pair_train[mine]]], fold.gt_train[mine]
                    if len(relit):
                        by = changes[:, [of[pair] for pair in zip(shown.tolist(), under.tolist(), strict=True)]]
                        learned = learned + pictures[[at[key] for key in shown]].relit(*by)
                        gt = np.concatenate([gt, fold.gt_train[relit]])
                    fitted = estimator(candidates()[name][0], {key: [value] for key, value in setting.items()}).fitted(
                        learned, gt
                    )
                    found = unit(fitted.estimate(pictures[[at[key] for key in fold.key_test]]))
                    angles = np.arccos(np.clip((found * unit(fold.gt_test)).sum(axis=1), -1, 1))
                    errors.append([np.degrees(angles).mean(), np.degrees(np.median(angles))])
                mean, median = np.mean(errors, axis=0)
                print(f"{name} {setting}, {count} re-illuminated: mean {mean:.2f}, median {median:.2f}", flush=True)


if __name__ == "__main__":
    main()
