"""Reports: typed blocks rendered to one HTML file that needs nothing else."""
