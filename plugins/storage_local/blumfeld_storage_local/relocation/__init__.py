"""Move logs between log directories while they serve (KIP-113)."""
