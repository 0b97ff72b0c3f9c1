"""Networks that estimate the illuminant from the transform between two cameras."""
