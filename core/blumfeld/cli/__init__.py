"""The command ``blumfeld``: :mod:`blumfeld.cli.main` decides what is imported for which verb."""
