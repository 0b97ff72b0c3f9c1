"""Networks that tell the light from the transform between two cameras."""
