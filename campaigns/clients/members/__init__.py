"""Members of a group: programs that each client runs, and their lives as the checks see them."""
