"""One module for each API that a broker listener serves."""
