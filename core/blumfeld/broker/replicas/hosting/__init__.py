"""Replicas that come and go: opened, led, closed and deleted as the image or a controller says."""
