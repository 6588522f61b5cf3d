"""A simulated machine: its loop, its clocks, and the node that runs on it."""
