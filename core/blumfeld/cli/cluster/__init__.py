"""``blumfeld cluster``: several nodes on one machine for experiments, and their state as a table."""
