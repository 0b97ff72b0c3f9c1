"""CLEAR: ten years of Flickr photos in eleven classes (Lin et al., NeurIPS 2021 Datasets and Benchmarks)."""
