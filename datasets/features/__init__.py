"""Stored feature vectors, one per sample: read as rows, and joined to the rows of samples; and extraction of features."""
