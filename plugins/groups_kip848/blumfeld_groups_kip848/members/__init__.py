"""Members: how they join, heartbeat, leave, and time out."""
