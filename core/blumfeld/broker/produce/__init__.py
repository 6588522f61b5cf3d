"""Produce: the straight way for one batch, the general way, and why a write is refused."""
