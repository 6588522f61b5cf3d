"""Members: how they join, heartbeat and leave."""
