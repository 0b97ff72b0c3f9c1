"""Kinetics: its lists in every form, and lists of what a copy holds."""
