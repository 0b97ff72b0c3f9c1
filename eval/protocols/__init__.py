"""Protocols: which domain is learned, which are tested, and how results are counted."""
