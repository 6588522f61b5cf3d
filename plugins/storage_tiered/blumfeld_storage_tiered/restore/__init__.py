"""Gets a cluster back from its remote store alone: the store's content, the plan of a cluster from it, its files."""
