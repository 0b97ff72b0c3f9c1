"""Image-text encoders, which map images and texts to unit vectors in a shared space, with one small protocol."""
