"""``python -m cpdispatch`` is the command ``cpdispatch``."""

from cpdispatch.cli.app import main

if __name__ == "__main__":
    main()
