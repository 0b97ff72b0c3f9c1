"""Metrics in pure numpy: counts first, then a formula, each name saying what is averaged."""
