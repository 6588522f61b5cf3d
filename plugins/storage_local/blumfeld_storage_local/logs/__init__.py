"""The log of one replica: its halves, its flushes, its look-ups."""
