"""One writer at a time: its lease, and the intents it writes before readers see a change."""
