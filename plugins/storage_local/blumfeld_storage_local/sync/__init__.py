"""When written records are synced to the device, and what an ack promises about it."""
