"""What a controller before us noted as announced is used only when it is that."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any

import pytest

from controller.app import _remembered


@pytest.mark.parametrize("stored", [None, 5, "192.0.2.1", {"a": 1}, ["foo"], [1, None], [["192.0.2.1"]]])
def test_junk_is_nothing(stored: Any) -> None:
    assert _remembered(stored) == frozenset()


def test_addresses_are_addresses() -> None:
    assert _remembered(["192.0.2.1", "2001:db8::1"]) == {ip_address("192.0.2.1"), ip_address("2001:db8::1")}
