"""The order book, rebuilt from the archive's deltas. Pure."""
