"""Members of a group: programs that each client runs."""
