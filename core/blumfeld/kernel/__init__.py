"""Manifest → plan → running node: the runtime, the lifecycle, and the only place that knows plug-ins by name."""
