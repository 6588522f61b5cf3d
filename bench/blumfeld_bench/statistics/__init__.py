"""Turn measured rounds into figures, intervals and verdicts. Pure."""
