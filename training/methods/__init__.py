"""Baselines, one file a method: which of the rows seen so far the model trains on, by which loss, and what is kept of them."""
