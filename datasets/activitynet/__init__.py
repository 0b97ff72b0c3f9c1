"""ActivityNet v1.3: the official JSON and the TSP CSV files as rows. See ``README.md``."""
