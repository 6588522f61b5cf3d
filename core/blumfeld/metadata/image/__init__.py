"""The cluster image, the records that build it, and its snapshots (KIP-630). Pure."""
