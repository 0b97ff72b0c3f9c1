"""Does text find photos? Mean average precision of the packaged encoder on real pictures in ../shared/data.

Twenty superclass names (the IIRC superclasses with most photos among 500 ImageNet photos, one a class) rank those photos;
chance is the share of relevant photos. Then every caption of 275 captioned pictures ranks them.

    python benchmarks/retrieval_map.py [--quick]
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
from benchwright.curation.encoders.encoder import Encoder
from benchwright.curation.encoders.loading import load_encoder
from benchwright.curation.encoders.spec import Conse

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
SPELLING = {"electronic_equipement": "electronic equipment"}


def average_precision(scores: np.ndarray, relevant: np.ndarray) -> float:
    """Mean of the precisions at the ranks of the relevant items, without interpolation; ties keep the order given.

    Args:
        scores: float of shape (n,), higher is nearer.
        relevant: bool of shape (n,), at least one True.
    """
    hits = relevant[np.argsort(-scores, kind="stable")]
    precision = np.cumsum(hits) / np.arange(1, len(hits) + 1)
    return float(precision[hits].mean())


def superclasses(data: Path, queries: int) -> tuple[list[Path], dict[str, np.ndarray]]:
    """The photos, and for each of the most frequent superclasses which of them belong to it."""
    files = sorted((data / "photos" / "imagenet_samples").glob("*.jpg"))
    hierarchy = json.loads((data / "iirc" / "iirc_imagenet_hierarchy_wnids.json").read_text())["super_classes"]
    wnids = np.array([file.name.partition("_")[0] for file in files])
    members = {name: np.isin(wnids, wnids_of) for name, wnids_of in hierarchy.items()}
    chosen = sorted(members, key=lambda name: (-int(members[name].sum()), name))[:queries]
    return files, {SPELLING.get(name, name.replace("_", " ")): members[name] for name in chosen}


def superclass_map(encoder: Encoder, data: Path, queries: int = 20) -> dict[str, float]:
    """Average precision of each superclass name as a query."""
    files, members = superclasses(data, queries)
    images = encoder.encode_prepared([encoder.prepare(file.read_bytes()) for file in files])
    texts = encoder.encode_texts(list(members))
    return {
        name: average_precision(images @ text, relevant) for (name, relevant), text in zip(members.items(), texts, strict=True)
    }


def caption_map(encoder: Encoder, data: Path) -> tuple[float, float]:
    """Mean average precision of all captions, and chance."""
    folder = data / "photos" / "tuxpaint"
    pictures = json.loads((folder / "captions.json").read_text())
    images = encoder.encode_prepared([encoder.prepare((folder / picture["file"]).read_bytes()) for picture in pictures])
    captions = sorted({picture["caption"] for picture in pictures})
    relevant = np.array([[picture["caption"] == caption for picture in pictures] for caption in captions])
    scores = encoder.encode_texts(captions) @ images.T
    return float(np.mean([average_precision(*pair) for pair in zip(scores, relevant, strict=True)])), float(relevant.mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="leave the captions out")
    quick = parser.parse_args().quick
    if not DATA.is_dir():
        print("../shared/data is not there: nothing to measure")
        return
    began = time.perf_counter()
    encoder = load_encoder(Conse())
    scores = superclass_map(encoder, DATA)
    chance = np.mean([relevant.mean() for relevant in superclasses(DATA, 20)[1].values()])
    for name, score in scores.items():
        print(f"  {name:24} {score:.3f}")
    print(
        f"mAP of {len(scores)} superclass queries over 500 photos: {np.mean(list(scores.values())):.3f} (chance {chance:.3f})"
    )
    if not quick:
        score, chance = caption_map(encoder, DATA)
        print(f"mAP of all captions over 275 pictures: {score:.3f} (chance {chance:.3f})")
    print(f"{time.perf_counter() - began:.0f} s with {encoder.name}")


if __name__ == "__main__":
    main()
