"""IIRC: settings, plan, card, baselines and report."""
