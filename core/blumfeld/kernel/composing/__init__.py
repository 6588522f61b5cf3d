"""From a manifest to a plan, and from a plan to the parts that plug-ins make."""
