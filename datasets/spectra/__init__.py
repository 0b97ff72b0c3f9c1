"""Spectra of lights, surfaces and cameras: readers of published files, and the spectra of colour-science."""
