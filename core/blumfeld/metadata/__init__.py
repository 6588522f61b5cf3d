"""The cluster image and the controller: commands decide, records change. Pure."""
