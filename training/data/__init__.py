"""Samples: features, images, clips."""
