"""Two-camera illuminant estimation: rows, facts, transforms, folds, and the rendered and photographed datasets of the paper."""
