"""The workload ``tiered``: the workload ``cluster`` with topics whose older records lie in an object store."""
