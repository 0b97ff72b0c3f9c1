"""vCLIMB: settings, plan, card, baselines and report."""
