"""The command line: parses, calls the package, prints."""

from cpdispatch.cli.app import main, run

__all__ = ["main", "run"]
