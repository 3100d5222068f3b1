"""NICs on PCI, as a made-up sysfs tells of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from forwarder import pci
from forwarder.settings import PortSettings, Refused

NIC, OTHER, DISK = "0000:3b:00.0", "0000:3b:00.1", "0000:00:02.0"


@pytest.fixture
def devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two NICs and a disk on two NUMA nodes."""
    monkeypatch.setattr(pci, "DEVICES", tmp_path / "devices")
    monkeypatch.setattr(pci, "NODES", tmp_path / "node")
    for address, kind in ((NIC, "0x020000"), (OTHER, "0x020000"), (DISK, "0x018000")):
        device = tmp_path / "devices" / address
        device.mkdir(parents=True)
        (device / "class").write_text(f"{kind}\n")
        (device / "numa_node").write_text("1\n")
    for node in (0, 1):
        (tmp_path / "node" / f"node{node}").mkdir(parents=True)
    return tmp_path / "devices"


def bind(devices: Path, address: str, driver: str) -> None:
    (devices / address / "driver").symlink_to(f"../../drivers/{driver}")


def port(device: str, driver: str) -> PortSettings:
    return PortSettings(device=device, driver=driver, mtu=1500, gateways={}, mac=None)


@pytest.mark.parametrize("driver", ["vfio-pci", "uio_pci_generic", "igb_uio", "mlx5_core", "mlx4_core"])
def test_dpdk_can_have_what_the_kernel_hands_out_or_shares(devices: Path, driver: str) -> None:
    bind(devices, NIC, driver)
    pci.check(NIC)


def test_a_missing_device_is_named_with_the_nics_that_there_are(devices: Path) -> None:
    with pytest.raises(Refused, match=f"no PCI device 0000:99:00.0 here .*; NICs on PCI: {NIC}, {OTHER}\\.$"):
        pci.check("0000:99:00.0")


def test_without_any_the_sentence_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pci, "DEVICES", tmp_path / "nothing")
    with pytest.raises(Refused, match=r"NICs on PCI: none\.$"):
        pci.check(NIC)


@pytest.mark.parametrize(("driver", "told"), [("ice", "ice"), (None, "no driver")])
def test_what_the_kernel_has_not_let_go_of_is_refused(devices: Path, driver: str | None, told: str) -> None:
    if driver:
        bind(devices, NIC, driver)
    with pytest.raises(Refused, match=f"{NIC} is bound to {told}, and .* bound to vfio-pci: `maglev doctor CONFIG`"):
        pci.check(NIC)


def test_memory_belongs_to_the_node_of_the_first_nic_on_pci(devices: Path) -> None:
    (devices / OTHER / "numa_node").write_text("0\n")
    assert pci.numa_node((port("eth1", "af_packet"), port(NIC, "pci"), port(OTHER, "pci"))) == 1


def test_it_does_not_matter_without_such_a_nic_or_another_node_or_when_nobody_knows(devices: Path) -> None:
    assert pci.numa_node((port("eth1", "af_packet"),)) is None
    (devices / NIC / "numa_node").write_text("-1\n")
    assert pci.numa_node((port(NIC, "pci"),)) is None
    (devices / NIC / "numa_node").write_text("1\n")
    (devices.parent / "node" / "node0").rmdir()
    assert pci.numa_node((port(NIC, "pci"),)) is None


def test_near_a_node_is_on_its_cpus_and_then_back(devices: Path) -> None:
    before = os.sched_getaffinity(0)
    (devices.parent / "node" / "node1" / f"cpu{min(before)}").mkdir()
    with pci.near(1):
        assert os.sched_getaffinity(0) == {min(before)}
    assert os.sched_getaffinity(0) == before
    with pci.near(None):
        assert os.sched_getaffinity(0) == before
