"""Sequences of skeletons as graph tensors: N-UCLA, NTU RGB+D, arrays in circulation, and anyone's own joints."""
