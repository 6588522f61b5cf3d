"""Connections on any driver: accepted ones with requests and answers, dialled ones with frames."""
