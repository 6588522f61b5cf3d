"""Builds: from a manifest to one file that holds what the manifest names, and tells what it is made of."""
