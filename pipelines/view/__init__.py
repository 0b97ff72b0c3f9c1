"""A run in the browser: ``benchwright view``."""
