"""A wire and a forwarder on it, gone after each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from wire import Forwarder, Wire, remove_namespaces


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
