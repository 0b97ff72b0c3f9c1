"""IIRC: label hierarchies, task configurations, and which sample is given under which label."""
