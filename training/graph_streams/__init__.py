"""Streams of tasks on skeleton graphs, many at a time: orders that begin alike are trained once as far as they are alike."""
