"""A bench's input: workloads, the variants to compare, and the order and length of their rounds."""
