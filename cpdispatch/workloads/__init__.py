"""Workloads: logs read and written, mapped to systems, generated."""
