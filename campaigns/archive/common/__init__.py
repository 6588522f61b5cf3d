"""Parts that the campaigns of the archive share: processes, brokers, topics, feeds, tallies and the report."""
