"""Illuminant estimators on linear images, one file per family: the baselines for two-camera networks."""
