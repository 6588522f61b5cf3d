"""Sections of a manifest read, the plug-ins that they name found, their hooks called.

The kernel composes a node with it. A plug-in that is a program of its own (``blumfeld archive``) reads its section and
finds further plug-ins with it, so that both refuse the same mistakes in the same words.
"""
