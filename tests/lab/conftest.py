"""A wire and a forwarder on it, gone after each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from wire import PEER_ADDRESS, Forwarder, Wire, remove_namespaces


@pytest.fixture
def wire() -> Iterator[Wire]:
    try:
        made = Wire()
        yield made
        made.close()
    finally:
        remove_namespaces()


@pytest.fixture
def forwarder(wire: Wire) -> Iterator[Forwarder]:
    made = Forwarder()
    yield made
    made.close()


@pytest.fixture
def serving(wire: Wire, forwarder: Forwarder) -> Forwarder:
    """Started, with a vip of two backends, and a next hop that the kernel knows for ever."""
    wire.neighbor(PEER_ADDRESS, wire.peer_mac)
    forwarder.start()
    forwarder.serve()
    return forwarder
