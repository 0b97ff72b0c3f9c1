"""Spectra of lights, surfaces and cameras: readers of published files, and what colour-science ships."""
