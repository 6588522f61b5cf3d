"""Classic members of a KIP-848 group, and the conversion between the two group types."""
