"""Baselines, one file a method: which of the rows seen so far the model trains on next."""
