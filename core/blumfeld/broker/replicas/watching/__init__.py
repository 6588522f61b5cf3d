"""Growth of a log as others see it: parked fetches are told, bytes are counted."""
