"""Training: loop, models, and one file per method."""
