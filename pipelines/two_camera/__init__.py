"""Two-camera illuminant estimation: settings, plan, card, networks and report."""
