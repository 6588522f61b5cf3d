"""Distributions to begin with: ``blumfeld new plugin`` writes one, with a contract kit that is red where its author
must write.

A folder beside these modules is the template of a role: real packages, which the linter and mypy check here as they
stand. ``acme_ROLE`` in its names and texts becomes the name of the new plug-in.
"""
