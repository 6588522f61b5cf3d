"""A bench's plan: the variants to compare, and the order and length of their rounds."""
