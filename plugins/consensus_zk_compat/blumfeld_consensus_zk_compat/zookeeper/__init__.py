"""The edge: the client library of ZooKeeper, whose threads end here."""
