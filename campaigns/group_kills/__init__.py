"""Kills of a broker in the middle of rebalances and commits, under real clients, and what must be true after them."""
