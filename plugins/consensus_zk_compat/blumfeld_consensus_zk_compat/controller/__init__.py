"""The controller of the node that holds ``/controller``."""
