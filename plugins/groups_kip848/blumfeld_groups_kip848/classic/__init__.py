"""Classic members of a KIP-848 group, and the change from one type to the other."""
