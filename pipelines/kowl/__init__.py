"""KOWL-718: settings, plan, card, predictors and report."""
