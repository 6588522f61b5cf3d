"""The contents of a remote store for one partition, and the rules over them. Pure."""
