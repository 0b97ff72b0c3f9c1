"""Kinetics: its lists in every form, lists of what a copy holds, and statistics of lists."""
