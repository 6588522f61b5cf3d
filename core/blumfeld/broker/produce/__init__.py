"""Produce: the straight way for a request with one batch, and requests that wait for their batches."""
