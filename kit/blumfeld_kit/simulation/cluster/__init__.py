"""The workload ``cluster``: clients of one cluster of whole nodes, and an oracle of what its logs promised."""
