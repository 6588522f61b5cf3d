"""The cluster image, the records that make it, and their snapshot (KIP-630). Pure."""
