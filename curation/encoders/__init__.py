"""Image-text encoders: images and texts to unit vectors of one space, behind one small protocol."""
