"""The work of a node for the partitions that it leads: copies, retention, deletion."""
