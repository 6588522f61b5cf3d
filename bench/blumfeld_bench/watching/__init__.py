"""Show a running bench: a tally of the run, and the live view."""
