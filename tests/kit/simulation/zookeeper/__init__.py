"""The ZooKeeper of a simulated cluster."""
