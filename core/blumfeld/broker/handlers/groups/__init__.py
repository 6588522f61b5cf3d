"""One module for each API of groups. They route to shards, and merge the answers of several."""
