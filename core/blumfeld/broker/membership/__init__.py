"""Membership: this broker's registration with the controller, and its log directories."""
