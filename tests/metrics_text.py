"""Metrics as a reader of the text sees them."""

from __future__ import annotations

import http.client
import socket
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


class _Unix(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("node", timeout=5)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self.path))


def read(connection: http.client.HTTPConnection, resource: str = "/metrics") -> tuple[int, str, str]:
    """Status, content type and text."""
    try:
        connection.request("GET", resource)
        response = connection.getresponse()
        return response.status, response.getheader("Content-Type", ""), response.read().decode()
    finally:
        connection.close()


def of_socket(path: Path) -> str:
    """The metrics at a control socket."""
    status, _, text = read(_Unix(path))
    assert status == 200
    return text


def samples(text: str) -> Samples:
    """{(name, sorted labels): value}; the parser of the library refuses what is no exposition."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(found: Samples, name: str, **labels: str) -> float:
    """One sample's."""
    return found[name, tuple(sorted(labels.items()))]
