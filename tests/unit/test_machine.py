from __future__ import annotations

from pathlib import Path

import pytest
from config_text import GOOD

from controller import machine
from controller.config import loads
from controller.machine import obstacle, without_carrier

LO = GOOD.replace("device: eth1", "device: lo")


def test_a_missing_interface_is_named_with_those_that_are_there() -> None:
    sentence = obstacle(loads(GOOD.replace("device: eth1", "device: nosuch0")))
    assert sentence
    assert sentence.startswith("forwarder.ports: there is no interface nosuch0 here (there are: ")


def test_missing_rights_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_effective", lambda: 1 << 12)
    assert obstacle(loads(LO)) == "packets on lo need CAP_NET_RAW: run it as root"
    monkeypatch.setattr(machine, "_effective", lambda: 1 << 12 | 1 << 13)
    assert obstacle(loads(LO)) is None


@pytest.mark.parametrize("port", ["device: 0000:3b:00.0", "device: net_null0\n      driver: vdev"])
def test_a_port_with_a_tap_needs_the_same(monkeypatch: pytest.MonkeyPatch, port: str) -> None:
    monkeypatch.setattr(machine, "_effective", lambda: 0)
    config = loads(GOOD.replace("device: eth1\n      driver: auto", port).replace("mtu: 1500", "tap: maglev0"))
    device = config.forwarder.ports[0].device
    assert obstacle(config) == f"packets on {device} need CAP_NET_ADMIN and CAP_NET_RAW: run it as root"


def test_without_a_carrier_at_a_tap_nothing_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "NET", tmp_path)
    config = loads(GOOD.replace("    - device: eth1\n", "    - device: 0000:3b:00.0\n    - device: eth1\n"))
    assert without_carrier(loads(GOOD)) is None, "an interface of the kernel is there without a forwarder"
    assert without_carrier(config) == "maglev0 has no carrier", "it is not there yet"
    (tmp_path / "maglev0").mkdir()
    for carrier, told in (("0\n", "maglev0 has no carrier"), ("1\n", None)):
        (tmp_path / "maglev0" / "carrier").write_text(carrier)
        assert without_carrier(config) == told


def test_a_vdev_needs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_effective", lambda: 0)
    assert obstacle(loads(GOOD.replace("device: eth1", "device: net_null0"))) is None
