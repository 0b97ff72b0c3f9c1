"""Illuminant estimators on linear images, one file per family: the baselines that two-camera networks are measured against."""
