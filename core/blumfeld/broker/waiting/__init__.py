"""Waiting: requests that can't be answered yet, and the timing wheel that ends their wait."""
