"""What a log remembers of its producers: idempotence, transactions, snapshots (KIP-98). Pure."""
