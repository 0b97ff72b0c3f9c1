"""Readers of published datasets: the index, samples in any order, whole feature matrices, and torch loaders."""
