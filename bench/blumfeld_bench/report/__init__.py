"""Present a result: tables for the terminal, one self-contained HTML page, and its plots as PNGs."""
