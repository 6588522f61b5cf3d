"""A result made readable: one HTML page that needs nothing else, and the same plots as PNGs."""
