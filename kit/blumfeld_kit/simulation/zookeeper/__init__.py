"""A simulated ZooKeeper under a cluster of whole nodes: its servers, the nodes' sessions, and its tree as an oracle."""
