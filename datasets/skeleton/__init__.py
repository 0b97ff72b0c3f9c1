"""Skeleton sequences as graph tensors: N-UCLA, NTU RGB+D, common array files, and your own joints."""
