"""IIRC: label hierarchies, task configurations, and the assignment of samples to labels."""
