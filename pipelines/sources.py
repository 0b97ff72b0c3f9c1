"""Kinds of sources by name, for each benchmark: what ``source.kind`` may be, and the function that yields the rows."""

from __future__ import annotations

from collections.abc import Mapping

from ..curation.registry import Registry

_STAGES = "benchwright.curation.stages"
_DATASETS = "benchwright.datasets"


_TABLES: Mapping[str, Mapping[str, str]] = {
    "clear": {
        "drawn": f"{_DATASETS}.clear.synthetic:draw_pictures",
        "folder": f"{_STAGES}.image_sources:read_folder",
        "labelled": f"{_DATASETS}.clear.labelled:read_labelled",
        "release": f"{_DATASETS}.clear.read_release:read_release",
        "tars": f"{_STAGES}.tar_sources:read_tar",
        "yfcc100m": f"{_DATASETS}.yfcc100m.metadata:read_metadata",
    },
    "iirc": {
        "cifar100": f"{_DATASETS}.class_images.cifar:read_archive",
        "drawn": f"{_DATASETS}.iirc.synthetic:draw_class_images",
        "folders": f"{_DATASETS}.class_images.folders:read_class_images",
        "tars": f"{_DATASETS}.class_images.folders:read_class_images",
    },
    "kowl": {
        "drawn": f"{_DATASETS}.kowl.synthetic:draw_lists",
        "lists": f"{_DATASETS}.kinetics.lists:read_kinetics_list",
        "tables": f"{_DATASETS}.kowl.own_lists:read_table",
    },
    "skeleton": {
        "arrays": f"{_DATASETS}.skeleton.arrays:list_arrays",
        "drawn": f"{_DATASETS}.skeleton.synthetic:list_drawn",
        "folders": f"{_DATASETS}.skeleton.files:list_class_folders",
        "ntu": f"{_DATASETS}.skeleton.ntu:list_ntu",
        "ntu_names": f"{_DATASETS}.skeleton.ntu:list_ntu_names",
        "npz": f"{_DATASETS}.skeleton.archives:read_npz",
        "nwucla": f"{_DATASETS}.skeleton.nwucla:list_nwucla",
        "pyskl": f"{_DATASETS}.skeleton.archives:read_pyskl",
        "table": f"{_DATASETS}.skeleton.tables:read_tables",
    },
    "two_camera": {
        "lit_pictures": f"{_DATASETS}.two_camera.lit_pictures:read_lit_pictures",
        "metadata": f"{_DATASETS}.two_camera.metadata:read_released_pairs",
        "quasi_real": f"{_DATASETS}.two_camera.quasi_real:list_matches",
        "radiometric": f"{_DATASETS}.two_camera.radiometric:draw_pairs",
        "radiometric_file": f"{_DATASETS}.two_camera.radiometric_file:read_radiometric_file",
        "raw_pairs": f"{_DATASETS}.two_camera.pair_files:list_pairs",
    },
    "vclimb": {
        "activitynet": f"{_DATASETS}.activitynet.annotations:read_activitynet_json",
        "activitynet_csv": f"{_DATASETS}.activitynet.annotations:read_tsp_csv",
        "csv": f"{_DATASETS}.videos.plain:list_csv",
        "drawn": f"{_DATASETS}.vclimb.synthetic:draw_videos",
        "folder": f"{_DATASETS}.videos.plain:list_folder",
        "kinetics": f"{_DATASETS}.kinetics.lists:read_kinetics_list",
        "split_file": f"{_DATASETS}.vclimb.split_files:read_split",
        "ucf101": f"{_DATASETS}.ucf101.lists:read_lists",
    },
}
SOURCES = {benchmark: Registry("source", table, fits=dict.fromkeys(table, benchmark)) for benchmark, table in _TABLES.items()}
"""Benchmark -> its sources. Sources of installed packages are offered to all benchmarks."""
