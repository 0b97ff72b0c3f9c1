"""Metrics in plain numpy, evaluation protocols, and reports."""
