"""``HOST:PORT``, as listeners, endpoints and Kafka's keys have it."""

from __future__ import annotations

PORT_MAX = 65_535


def host_and_port(text: str) -> tuple[str, int]:
    """Returns (host, port) of ``HOST:PORT``. The brackets of an IPv6 host are removed.

    :raises ValueError: the text has another form
    """
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(text)
    if not colon or not port.isascii() or not port.isdigit() or int(port) > PORT_MAX:
        raise ValueError(text)
    return host, int(port)


def address_text(host: str, port: int) -> str:
    """Returns ``HOST:PORT``, with an IPv6 host in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
