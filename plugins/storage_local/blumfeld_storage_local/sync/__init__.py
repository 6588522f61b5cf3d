"""Syncs: what one must cover, and the rounds that logs share."""
