"""Training: loop, models, and one file a method."""
