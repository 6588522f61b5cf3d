"""Cluster metadata: the controller's commands decide, replayed records change the image. Pure."""
