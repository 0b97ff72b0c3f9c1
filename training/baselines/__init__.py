"""The methods of the published benchmarks with their papers' settings."""
