"""Illuminant estimators on linear images, one file a family: the baselines that two-camera networks are measured against."""
