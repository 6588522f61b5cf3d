"""What a node does for the partitions that it leads: copies, retention, deletion."""
