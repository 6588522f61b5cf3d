"""Produce: the straight way for a request with one batch, pending requests, record checks, and refused writes."""
