"""Contract kits of plug-ins that bring none: a plug-in's parts are made by its own hooks, as a node makes them.

``blumfeld build --check`` runs :mod:`blumfeld_kit.plugin_kits.tests` for each plug-in of a build. A plug-in that knows
more of itself, such as that it survives a crash, brings a kit: a module with test classes, which its distribution names
in the group of entry points ``blumfeld.kits``.
"""

from blumfeld_kit.plugin_kits.kits import NoKit, kits_of

__all__ = ["NoKit", "kits_of"]
