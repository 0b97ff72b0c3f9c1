"""The radiometric comparison of two-camera illuminant estimation: networks on T beside every baseline on the same pictures.

    python benchmarks/two_camera_radiometric.py [--spectra FOLDER] [--cameras "Canon 5DMarkII" "Nikon D700"] [--quick]
        [--split pairs|lights] [--preset as_released|as_written] [--dim 1] [--only gray_world,200,...]
        [--train newton|lbfgs|adam]

Pairs are drawn as ``datasets.two_camera.radiometric`` draws them: 24 of the 1,995 surfaces under one light, as 32 x 48
thumbnails of 4 x 6 patches. 60 % train (and choose the settings of the baselines), 20 % decide when a network has trained
enough, 20 % test. Beside each line stands that of the paper (its Table 1), which does not name its cameras and has 87
other lights.

``--split lights`` gives test pairs lights that no training pair has. ``--preset`` says of what T is made: chromaticities,
as the released code has it, or raw colours, as the paper's Eq. 2 is printed. ``--dim 1`` hides each picture's brightest
patch from all, as code does that takes the largest value of a picture for a saturated one. "trees", "neighbours" and "mlp" are
no published methods: they show what can be told from T by estimators that are not held to a few parameters. ``--quick`` draws
1,500 pairs and trains for seconds. Times are CPU time.
"""

from __future__ import annotations

import argparse
import itertools
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np

PAPER = {  # mean, median, best 25 %, worst 25 %, Q1, Q3: the radiometric columns of the paper's Table 1
    "200": "2.80 2.20 0.72 5.87 1.19 3.81",
    "470": "2.65 2.00 0.64 5.72 1.07 3.61",
    "gray_world": "4.09 3.68 1.36 7.51 2.21 5.56",
    "shades_of_gray": "4.56 4.11 1.51 8.41 2.43 6.21",
    "gray_edge_1": "5.20 4.64 1.65 9.62 2.76 7.18",
    "gray_edge_2": "5.41 4.69 1.72 10.25 2.83 7.37",
    "weighted_gray_edge": "4.14 3.25 1.13 8.72 1.82 5.41",
    "bright_dark_pca": "4.55 3.09 1.03 10.67 1.68 5.85",
    "white_patch": "5.49 4.96 1.83 10.02 2.94 7.48",
    "gamut_pixel": "3.68 3.07 1.05 7.30 1.70 5.10",
    "gamut_edge": "6.09 5.34 1.95 11.49 3.15 8.42",
}
ORDER = ["470", "200", "gamut_pixel", "gray_world"]
NETWORKS = ["200", "470", "1460"]


def draw(options):
    """Colours (n, 24, 3) and lights (n, 3) of both cameras, transforms (n, 9), and the part of each pair: 0, 1 or 2."""
    import pyarrow as pa
    from benchwright.curation.rng import rng
    from benchwright.datasets.two_camera.radiometric import draw_pairs, pieces
    from benchwright.datasets.two_camera.transforms import fit
    from benchwright.training.illuminants.pictures import LinearPictures

    drawn = {
        "pairs": options.pairs,
        "sensitivities": str(options.spectra / "camspec_database.txt"),
        "cameras": options.cameras,
        "reflectances": str(options.spectra / "sfu_reflectances_1995x101_380_780_4nm.csv"),
        "lights": None,
        "without": options.without,
        "surfaces": 24,
        "step_nm": 10,
        "seed": options.seed,
    }
    table = pa.concat_tables([t for piece in pieces(pairs=options.pairs) for t in draw_pairs(piece, **drawn)])
    n = len(table)

    def column(name, *shape):
        return table[name].combine_chunks().flatten().to_numpy().reshape(n, *shape)

    colours = [column(f"colours_{k}", 24, 3) for k in (1, 2)]
    kept = np.sort(colours[0].max(axis=2).argsort(axis=1)[:, : 24 - options.dim], axis=1)[..., None]
    transform = fit(*(np.take_along_axis(c, kept, axis=1) for c in colours), preset=options.preset).matrix
    usable = np.zeros((n, 24, 1), dtype=bool)
    np.put_along_axis(usable, kept, True, axis=1)
    names = np.asarray(table["light"].to_pylist())
    lights = np.unique(names)
    of = lights if options.split == "lights" else np.arange(n)
    part = np.empty(len(of), dtype=np.int64)
    share = np.cumsum([round(0.6 * len(of)), round(0.2 * len(of))])
    part[rng(options.seed, "parts").permutation(len(of))] = np.searchsorted(share, np.arange(len(of)), side="right")
    return SimpleNamespace(
        pictures=LinearPictures.of(_thumbnails(colours[0]), _thumbnails(usable)[..., 0] > 0, second=_thumbnails(colours[1])),
        light=column("gt_1", 3),
        transform=transform.reshape(n, 9),
        part=part[np.searchsorted(lights, names)] if options.split == "lights" else part,
        lights=len(lights),
    )


def _thumbnails(values):
    """24 values as 4 x 6 patches of 8 x 8 pixels: (n, 24, c) -> (n, 32, 48, c) float32."""
    patches = values.astype(np.float32).reshape(len(values), 4, 6, -1)
    return np.repeat(np.repeat(patches, 8, axis=1), 8, axis=2)


def baseline(name, data):
    """Lights of the test pairs, and the setting."""
    from benchwright.training.illuminants.registry import candidates, estimator

    fitted = estimator(*candidates()[name]).fitted(data.pictures[data.part == 0], data.light[data.part == 0])
    return [fitted.estimate(data.pictures[data.part == 2])], ", ".join(f"{k} {v}" for k, v in fitted.setting.items())


def network(name, options, data):
    """Lights of the test pairs, one array a seed, and how it was trained."""
    from benchwright.training.two_camera.linear import ratios_of
    from benchwright.training.two_camera.shapes import shape_of

    train = {"adam": by_adam, "lbfgs": by_lbfgs, "newton": by_newton}[options.train]
    ratios, setting = train(shape_of(int(name)), options, data, ratios_of(data.light))
    return [np.stack([r[:, 0], np.ones(len(r)), r[:, 1]], axis=1).astype(np.float64) for r in ratios], setting


def by_adam(layers, options, data, ratios):
    """The paper's training: 1,000,000 epochs at a rate of 1e-4 unless options say less."""
    from benchwright.training.two_camera.batched import NetworkRun, estimated_ratios, fit_runs
    from benchwright.training.two_camera.settings import Hyper, settings

    changed = {"epochs": options.epochs, "learning_rate": options.rate, "schedule": "cosine", "patience_epochs": None}
    hyper = Hyper(**{**settings("radiometric"), **changed})
    train, watch, test = (np.flatnonzero(data.part == k) for k in range(3))
    runs = [NetworkRun(train, watch, seed, "radiometric") for seed in range(options.seeds)]
    fitted = fit_runs(data.transform, ratios, runs, shape=layers, hyper=hyper)
    found = estimated_ratios(fitted.nets, [data.transform[test].astype(np.float32)] * len(runs))
    return found, f"{options.seeds} seeds, Adam, {options.epochs} epochs of {hyper.batch_size}, rate {options.rate:g}"


def by_newton(layers, options, data, ratios):
    """The same networks to the minimum of their training loss (``training.two_camera.newton``)."""
    from benchwright.training.two_camera.batched import NetworkRun, estimated_ratios
    from benchwright.training.two_camera.newton import fit_newton
    from benchwright.training.two_camera.settings import Newton, settings

    hyper = Newton(**{**settings("radiometric_newton"), "iterations": options.rounds})
    train, watch, test = (np.flatnonzero(data.part == k) for k in range(3))
    runs = [NetworkRun(train, watch[:0], seed, "radiometric") for seed in range(options.seeds)]
    fitted = fit_newton(data.transform, ratios, runs, shape=layers, hyper=hyper, progress=print)
    found = estimated_ratios(fitted.nets, [data.transform[test].astype(np.float32)] * len(runs))
    return found, f"{options.seeds} seeds, Levenberg-Marquardt, best of {hyper.starts} starts, {fitted.steps.max()} steps"


def forest(options, data):
    """What T holds for an estimator that is not held to 200 parameters: extremely randomised trees on the same nine numbers."""
    from benchwright.training.two_camera.linear import ratios_of
    from sklearn.ensemble import ExtraTreesRegressor

    train, test = data.part == 0, data.part == 2
    trees = ExtraTreesRegressor(200, min_samples_leaf=3, max_features=3, random_state=options.seed)
    r = np.exp(trees.fit(data.transform[train], np.log(ratios_of(data.light[train]))).predict(data.transform[test]))
    return [np.stack([r[:, 0], np.ones(len(r)), r[:, 1]], axis=1)], "200 trees"


def perceptron(options, data):
    """The same with a network of 34,562 parameters: three layers of 128 hidden units."""
    from sklearn.neural_network import MLPRegressor

    model = MLPRegressor(
        hidden_layer_sizes=(128, 128, 128),
        learning_rate_init=1e-3,
        early_stopping=True,
        n_iter_no_change=25,
        max_iter=400,
        random_state=options.seed,
    )
    return [_from_standardised(model, data)], f"128-128-128, early stopping after {model.n_iter_} epochs"


def neighbours(_options, data):
    """The same by the nearest training pairs."""
    from sklearn.neighbors import KNeighborsRegressor

    return [_from_standardised(KNeighborsRegressor(8, weights="distance"), data)], "8 nearest, T standardised"


def _from_standardised(model, data):
    """Lights of the test pairs by an estimator of log ratios."""
    from benchwright.training.two_camera.linear import ratios_of

    train, test = data.part == 0, data.part == 2
    mean, scale = data.transform[train].mean(axis=0), data.transform[train].std(axis=0)
    model.fit((data.transform[train] - mean) / scale, 3 * np.log(ratios_of(data.light[train])))
    r = np.exp(model.predict((data.transform[test] - mean) / scale) / 3)
    return np.stack([r[:, 0], np.ones(len(r)), r[:, 1]], axis=1)


def by_lbfgs(layers, options, data, ratios):
    """The same networks and loss on all rows at once, which takes seconds: T standardised, weights of the least loss."""
    import torch
    from benchwright.curation.encoders.one_thread import one_thread
    from benchwright.training.core.determinism import generator
    from benchwright.training.models.illuminant_net import draw_nets

    train = data.part == 0
    X = (data.transform - data.transform[train].mean(axis=0)) / data.transform[train].std(axis=0)
    X, truth = torch.from_numpy(X)[None], torch.from_numpy(ratios[train])[None]
    rows, test = torch.from_numpy(train), torch.from_numpy(data.part == 2)
    found = []
    with one_thread():
        for seed in range(options.seeds):
            nets = draw_nets(layers, [generator(seed, "radiometric", str(layers))]).double()
            with torch.no_grad():
                nets.layers()[-1][1].copy_(truth.mean(dim=1, keepdim=True).log())
            optimiser = torch.optim.LBFGS(
                nets.parameters(),
                max_iter=options.rounds,
                history_size=30,
                tolerance_change=1e-9,
                line_search_fn="strong_wolfe",
            )

            def loss(nets=nets, optimiser=optimiser):
                optimiser.zero_grad()
                value = (nets(X[:, rows]) - truth).abs().mean()
                value.backward()
                return value

            optimiser.step(loss)
            with torch.no_grad():
                found.append(nets(X[:, test])[0].numpy())
    return found, f"{options.seeds} seeds, L-BFGS, {options.rounds} rounds"


def statistics(estimates, truth):
    """The six statistics, averaged over the runs."""
    from benchwright.eval.metrics.angular import angular_error_deg, angular_statistics

    found = [angular_statistics(angular_error_deg(e, truth)) for e in estimates]
    return np.mean([[s.mean, s.median, s.best_25, s.worst_25, s.q1, s.q3] for s in found], axis=0)


def linear(_options, data):
    """Linear regression on T (the paper has it in Table 3 alone)."""
    from benchwright.training.two_camera.linear import ratios_of

    rows = np.concatenate([data.transform, np.ones((len(data.transform), 1))], axis=1)
    weights, *_ = np.linalg.lstsq(rows[data.part == 0], ratios_of(data.light)[data.part == 0], rcond=None)
    r = np.maximum(rows[data.part == 2] @ weights, 1e-3)
    return [np.stack([r[:, 0], np.ones(len(r)), r[:, 1]], axis=1)], ""


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--spectra", type=Path, default=Path(__file__).resolve().parents[2] / "shared" / "data" / "spectra")
    parser.add_argument("--pairs", type=int, default=18000)
    parser.add_argument("--cameras", nargs=2, default=["Canon 5DMarkII", "Nikon D700"])
    parser.add_argument("--without", nargs="*", default=["LPS"], help="lights to leave out")
    parser.add_argument("--split", choices=["pairs", "lights"], default="pairs")
    parser.add_argument("--preset", choices=["as_released", "as_written"], default="as_released")
    parser.add_argument("--dim", type=int, default=0, help="brightest patches that are hidden")
    parser.add_argument("--seed", type=int, default=0, help="of the pairs and parts")
    parser.add_argument("--seeds", type=int, default=1, help="networks of each size")
    parser.add_argument("--epochs", type=int, default=3000, help="of Adam")
    parser.add_argument("--rate", type=float, default=3e-3, help="of Adam")
    parser.add_argument("--train", choices=["newton", "lbfgs", "adam"], default="newton", help="how networks are trained")
    parser.add_argument("--rounds", type=int, default=600, help="of newton and L-BFGS")
    parser.add_argument("--only", default="")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    if options.quick:
        options.pairs, options.seeds, options.epochs, options.rounds = 1500, 1, 100, 200
    return options


def main() -> None:
    from benchwright.training.illuminants.registry import candidates

    options = arguments()
    if not (options.spectra / "camspec_database.txt").is_file():
        raise SystemExit(
            f"{options.spectra}: no camspec_database.txt there; --spectra names the folder with the published spectra"
        )
    start = time.process_time()
    data = draw(options)
    sizes = "/".join(str((data.part == k).sum()) for k in range(3))
    print(
        f"{len(data.light)} pairs ({sizes}) of {' and '.join(options.cameras)}, {data.lights} lights, split by {options.split}"
    )
    print(f"drawn in {time.process_time() - start:.1f} s")
    names = options.only.split(",") if options.only else [*NETWORKS, "linear", "trees", "neighbours", "mlp", *candidates()]
    truth = data.light[data.part == 2] / data.light[data.part == 2][:, 1:2]
    means = {}
    print("\n| method | mean | median | best 25 % | worst 25 % | Q1 | Q3 | the paper's Table 1 | CPU s | setting |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for name in names:
        start = time.process_time()
        if name in NETWORKS:
            found, setting = network(name, options, data)
        else:
            on_t = {"linear": linear, "trees": forest, "neighbours": neighbours, "mlp": perceptron}
            found, setting = on_t[name](options, data) if name in on_t else baseline(name, data)
        values = statistics(found, truth)
        means[name] = values[0]
        cells = " | ".join(f"{v:.2f}" for v in values)
        print(f"| {name} | {cells} | {PAPER.get(name, '-')} | {time.process_time() - start:.0f} | {setting} |", flush=True)
    if all(name in means for name in ORDER):
        holds = all(means[a] < means[b] for a, b in itertools.pairwise(ORDER))
        print(f"\n{' < '.join(ORDER)} {'holds' if holds else 'does not hold'}")


if __name__ == "__main__":
    main()
