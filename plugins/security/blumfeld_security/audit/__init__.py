"""The audit: verdicts in the log, and counts of them."""
