"""When what was written is on the device."""
