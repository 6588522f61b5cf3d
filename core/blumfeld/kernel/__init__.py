"""Makes a running node from a manifest: plan, parts, runtime, life cycle. The only code that knows plug-ins by name."""
