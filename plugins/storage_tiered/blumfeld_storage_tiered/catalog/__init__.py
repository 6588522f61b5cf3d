"""What a remote store holds of one partition, and the rules over it. Pure."""
