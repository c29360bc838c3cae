"""On-line job dispatching for HPC clusters: constraint programming, backfilling, simulation."""

__version__ = "0.1.0"
