"""What a GPU gives beside what the processor gives; skipped where there is none.

``benchmarks/bench_gpu.py`` has the rates. Trainings on a GPU are tested beside those on processors: ``training/test_moco.py``,
``training/test_graph_bodies.py`` and ``pipelines/test_clear_pixels.py``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from benchwright.curation.encoders.torchvision_compat import ensure_torchvision
from benchwright.curation.stages.near_vectors import VectorSearch, vector_pairs
from benchwright.curation.stages.nominate import gpu_knn
from benchwright.curation.stages.topk import TopK
from benchwright.curation.stages.unit_vectors import Stacked
from benchwright.pipelines import api
from benchwright.pipelines.jobs import job

DEVICE = "encoder_run.device=cuda"

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no GPU")


def unit(count: int, seed: int) -> np.ndarray:
    drawn = np.random.default_rng(seed).standard_normal((count, 64), dtype=np.float32)
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


@pytest.fixture(scope="module")
def faiss_on_gpu() -> Any:
    knn = gpu_knn()
    if knn is None:
        pytest.skip("faiss has no GPU, or is built without support for one")
    return knn


def test_faiss_on_a_gpu_retrieves_the_same_rows(faiss_on_gpu: Any) -> None:
    vectors, queries = unit(50_000, 0), unit(7, 1)
    found: list[tuple[np.ndarray, ...]] = []
    for knn in (None, faiss_on_gpu):
        top = TopK(queries, 200, knn)
        for start in range(0, len(vectors), 20_000):
            top.add(vectors[start : start + 20_000].astype(np.float16), np.arange(start, min(start + 20_000, len(vectors))))
        found.append(top.result())
    for one, other in zip(*found, strict=True):
        assert np.array_equal(one, other)


@pytest.mark.parametrize("kind", ["flat", "ivf"])
def test_faiss_on_a_gpu_finds_the_same_near_pairs(kind: Any, faiss_on_gpu: Any) -> None:
    vectors = unit(20_000, 0)
    vectors[10_000:10_500] = vectors[:500] + np.random.default_rng(1).normal(0, 0.02, (500, 64))
    vectors[15_000:15_200] = vectors[7]  # more neighbours than a GPU returns
    rows, keys = np.arange(len(vectors)), [str(row) for row in range(len(vectors))]
    found: list[set[tuple[int, int]]] = []
    for device in ("cpu", "cuda"):
        pairs = vector_pairs(Stacked([vectors]), rows, keys, 0.9, VectorSearch(kind=kind), device=device)
        found.append({(int(a), int(b)) for part in pairs for a, b in zip(part.left, part.right, strict=True)})
    assert len(found[0]) > 500 + 200 * 199 // 2 - 10
    assert found[0] == found[1]


@needs_gpu
def test_vectors_of_a_gpu_are_those_of_the_processor_to_rounding(tmp_path: Path) -> None:
    from benchwright.datasets.features.networks import network

    ensure_torchvision()
    from torchvision.models import resnet18

    torch.manual_seed(0)
    torch.save(resnet18().state_dict(), tmp_path / "weights.pth")
    pictures = list(np.random.default_rng(0).integers(0, 256, (40, 3, 224, 224)).astype(np.uint8))
    how: dict[str, Any] = {"checkpoint": str(tmp_path / "weights.pth"), "model": "resnet18"}
    cpu, gpu = (network(device=device, block=16, **how).encode_prepared(pictures) for device in ("cpu", "cuda"))
    again = network(device="cuda", block=16, **how).encode_prepared(pictures[5:])
    assert np.array_equal(gpu[5:], again)
    cosine = (cpu * gpu).sum(1) / np.linalg.norm(cpu, axis=1) / np.linalg.norm(gpu, axis=1)
    assert cosine.min() > 0.99999


@needs_gpu
def test_a_cluster_with_a_gpu_worker_gives_what_one_process_gives(tmp_path: Path) -> None:
    ensure_torchvision()
    from torchvision.models import resnet18

    torch.manual_seed(0)
    torch.save(resnet18().state_dict(), tmp_path / "weights.pth")
    (tmp_path / "cluster.toml").write_text("port = 0\n[cpu]\nworkers = 2\n[gpu]\nworkers = 1\n")
    network = '{kind="network", model="resnet18", resize_px=64, side_px=64}'
    settings = [f"features.r18.weights={tmp_path / 'weights.pth'}", f"features.r18.encoder={network}", DEVICE]
    address: list[str] = []

    def made(name: str, scheduler: str) -> str:
        out = str(tmp_path / name)
        api.run(job("clear", config="tiny", overrides=settings), out, scheduler=scheduler)
        api.train(out, methods=["finetune"], overrides=["baselines.features=r18", DEVICE], scheduler=scheduler)
        return out

    alone = made("alone", "sync")
    api.cluster(str(tmp_path / "cluster.toml"), tell=address.append, until=lambda: made("cluster", address[0]))
    for inner in ("", "/experiments"):
        both = api.compare(alone + inner, str(tmp_path / "cluster") + inner)
        assert both
        assert all(each.same for each in both)
