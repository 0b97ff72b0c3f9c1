"""vCLIMB: published numbers, official split files, splits by rule and seed, leaks, coverage. See ``README.md``."""
