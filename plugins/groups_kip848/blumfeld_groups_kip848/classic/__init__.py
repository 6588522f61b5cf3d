"""Classic members of a KIP-848 group."""
