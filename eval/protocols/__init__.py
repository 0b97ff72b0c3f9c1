"""Protocols: which domain is learned, which are tested, and how the counts are kept."""
