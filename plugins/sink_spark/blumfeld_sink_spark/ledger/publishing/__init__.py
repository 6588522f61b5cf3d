"""A batch of staged files becomes a commit."""
