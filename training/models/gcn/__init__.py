"""Graph convolutional networks, and their fast training step."""
