"""Stages that several benchmarks share: plain functions over rows and tables."""
