"""``--check``: what the contract kits say of the plug-ins of a build."""
