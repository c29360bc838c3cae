"""Queue policies, backfilling and allocation: compiled kernels and the dispatchers over them."""
