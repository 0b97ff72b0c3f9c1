"""Continual skeleton graphs: settings, plan, card, experiments and report."""
