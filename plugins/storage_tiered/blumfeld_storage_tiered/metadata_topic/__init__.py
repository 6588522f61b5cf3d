"""``__remote_log_metadata``: written and read on every node. Knows the cluster, and nothing of the store."""
