"""The simulator: replays a workload through a dispatcher."""
