"""Two-camera illuminant estimation: rows, facts, transforms, folds, and the data sets that the paper draws or photographs."""
