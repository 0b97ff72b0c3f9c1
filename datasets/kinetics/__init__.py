"""Kinetics: its lists in every form, and lists of the videos in a copy."""
