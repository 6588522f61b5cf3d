"""Show a running bench: the watcher's contract, a tally of the run, and the live view."""
