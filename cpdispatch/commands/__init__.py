"""Commands of the command line that are imported when they are called."""
