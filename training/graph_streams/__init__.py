"""Parallel streams of tasks on skeleton graphs; orders with a common beginning share the training of that beginning."""
