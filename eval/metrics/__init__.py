"""Metrics in pure numpy: counts first, then a formula; each name says what is averaged."""
