"""CLEAR: settings, plan, card, baselines and report."""
