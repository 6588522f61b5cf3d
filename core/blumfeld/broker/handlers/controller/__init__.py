"""Requests of other nodes to the controller, one file each. They are served on controller listeners."""
