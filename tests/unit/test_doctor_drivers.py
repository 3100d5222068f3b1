"""What driver files of DPDK say of themselves: those of this machine, some made by the compiler, and damaged ones."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machine_tree import NIC, PMDS, Tree, shared_object

from controller.doctor import dpdk, needs
from controller.doctor.drivers import Driver, is_for_nics, read_all
from controller.doctor.machine import Machine
from forwarder import needs as forwarder_needs
from forwarder._dataplane import table_bytes
from forwarder.environment import needed_megabytes

IXGBE = (0x8086, 0x10FB, 0x8086, 0x0003)
XL710 = (0x8086, 0x1572, 0x8086, 0x0000)
VIRTIO = (0x1AF4, 0x1041, 0x1AF4, 0x1041)
CONNECTX5 = (0x15B3, 0x1017, 0x15B3, 0x0008)
ANY = 0xFFFF


@pytest.fixture(scope="module")
def installed() -> tuple[Driver, ...]:
    machine = Machine(Path("/"))
    assert machine.driver_directory, "make build installs DPDK with its drivers"
    return machine.drivers


@pytest.mark.parametrize(
    ("nic", "name", "bifurcated"),
    [
        (IXGBE, "net_ixgbe", False),
        (XL710, "net_i40e", False),
        (VIRTIO, "net_virtio", False),
        (CONNECTX5, "mlx5_eth", True),
    ],
)
def test_the_installed_drivers_know_their_nics(
    installed: tuple[Driver, ...], nic: tuple[int, int, int, int], name: str, bifurcated: bool
) -> None:
    knowing = [driver for driver in installed if driver.supports(nic)]
    assert [driver.name for driver in knowing] == [name]
    assert knowing[0].bifurcated is bifurcated
    assert knowing[0].bifurcated or "vfio-pci" in knowing[0].modules


def test_the_installed_drivers_know_no_sound_card(installed: tuple[Driver, ...]) -> None:
    assert not any(driver.supports((0x8086, 0x2668, 0x1AF4, 0x1100)) for driver in installed)
    assert {"net_af_packet", "net_null"} <= {driver.name for driver in installed}


def test_a_file_may_describe_several_drivers(tmp_path: Path) -> None:
    path = tmp_path / "librte_net_two.so"
    one = {"name": "net_one", "kmod": "vfio-pci", "pci_ids": [[1, 2, ANY, ANY]]}
    two = {"name": "net_two", "pci_ids": [[1, 3, 4, 5], [1, 6, ANY, 7]]}
    shared_object(path, one, two)
    assert read_all([path]) == (
        Driver("net_one", "vfio-pci", ((1, 2, ANY, ANY),)),
        Driver("net_two", "", ((1, 3, 4, 5), (1, 6, ANY, 7))),
    )


@pytest.mark.parametrize(
    ("row", "nic", "supported"),
    [
        ((1, 2, ANY, ANY), (1, 2, 8, 9), True),
        ((1, 2, ANY, ANY), (1, 3, 8, 9), False),
        ((1, 2, ANY, ANY), (2, 2, 8, 9), False),
        ((1, 2, 8, ANY), (1, 2, 8, 9), True),
        ((1, 2, 8, 9), (1, 2, 8, 9), True),
        ((1, 2, 8, 9), (1, 2, 8, 0), False),
        ((1, 2, 8, 9), (1, 2, 0, 9), False),
        ((1, ANY, ANY, ANY), (1, 77, 8, 9), True),
    ],
)
def test_an_id_of_all_ones_stands_for_every_one(
    row: tuple[int, int, int, int], nic: tuple[int, int, int, int], supported: bool
) -> None:
    assert Driver("net_x", "", (row,)).supports(nic) is supported


@pytest.mark.parametrize(
    "description",
    ["{", "{}", '{"name": "net_x", "pci_ids": 7}', '{"name": "x", "pci_ids": [[1, 2]]}', '{"pci_ids": []}', "no"],
)
def test_a_description_that_is_none_is_passed_over(tmp_path: Path, description: str) -> None:
    path = tmp_path / "librte_net_odd.so"
    shared_object(path, description, {"name": "net_good"})
    assert read_all([path]) == (Driver("net_good", "", ()),)


def test_a_link_and_its_file_are_one(tree: Tree) -> None:
    names = [driver.name for driver in Machine(tree.write()).drivers]
    assert names == ["mlx5_eth", "net_af_packet", "net_af_xdp", "net_ice", "net_thunderx"]


def test_only_drivers_for_nics_are_read() -> None:
    names = ("librte_net_ice.so.23.0", "librte_common_mlx5.so", "librte_crypto_mlx5.so.23", "librte_net.so", "x")
    assert [is_for_nics(name) for name in names] == [True, True, False, False, False]


def test_of_several_versions_the_newest_is_read(tree: Tree) -> None:
    for version in ("9.0", "23.0.1", "20.0"):
        tree.files[f"usr/local/lib/x/dpdk/pmds-{version}/README"] = ""
    assert Machine(tree.write()).driver_directory == "usr/local/lib/x/dpdk/pmds-23.0.1"


def test_where_the_data_plane_does_not_load_that_is_the_error(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(needs, "_asked", lambda *_: "no libdpdk")
    assert tree.wrong() == [("DPDK", "error", "the data plane cannot be loaded: no libdpdk")]


def test_the_forwarder_tells_what_it_needs_or_why_it_cannot_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["needs", "16384", "1048576"])
    assert forwarder_needs.main() == 0
    said = json.loads(capsys.readouterr().out)
    assert said == {"dpdk_megabytes": needed_megabytes(16384, hugepages=True), "table_bytes": table_bytes(1 << 20)}
    monkeypatch.setitem(sys.modules, "forwarder._dataplane", None)
    assert forwarder_needs.main() == 1
    assert "forwarder._dataplane" in capsys.readouterr().err


def test_no_dpdk_at_all_is_an_error(tree: Tree) -> None:
    root = tree.write()
    (root / PMDS).rename(root / "elsewhere")
    machine = Machine(root, (NIC,))
    assert (machine.driver_directory, machine.drivers) == (None, ())
    assert [f.says for f in dpdk.examine(machine, None) if f.level == "error"] == [
        "no directory of DPDK's drivers (dpdk/pmds-*) below /usr"
    ]


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_a_damaged_file_is_a_file_without_drivers(
    data: st.DataObject, drivers: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Or one with those that can still be read: it never raises."""
    octets = bytearray((drivers / "librte_net_ice.so.23.0").read_bytes())
    if data.draw(st.booleans()):
        octets = octets[: data.draw(st.integers(0, len(octets)))]
    for _ in range(data.draw(st.integers(0, 8))):
        if octets:
            octets[data.draw(st.integers(0, len(octets) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "librte_net_damaged.so"
    path.write_bytes(octets)
    read_all([path])
