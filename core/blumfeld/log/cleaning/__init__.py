"""The log cleaner: which log it takes next, which records it keeps, and its two passes. Pure."""
