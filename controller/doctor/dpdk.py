"""DPDK as it is installed: whether the data plane loads, and whether the drivers are there that the ports need."""

from __future__ import annotations

from collections.abc import Iterator

from controller.config import Config
from controller.config_sections import Forwarder
from controller.doctor.finding import Finding, error, ok
from controller.doctor.machine import Machine
from controller.doctor.needs import CannotRunError, needs
from forwarder.settings import KERNEL_DRIVERS, parse

POOL_DRIVER = "librte_mempool_ring"


def examine(machine: Machine, config: Config | None) -> Iterator[Finding]:
    """The data plane, the directory of drivers, and each driver that a port is opened with."""
    try:
        needs(config.forwarder if config else Forwarder())
        yield ok("the data plane can be loaded")
    except CannotRunError as failure:
        says = f"the data plane cannot be loaded: {failure}"
        yield error(says, "it is the forwarder", "apt-get install libdpdk-dev librte-mempool-ring23 && make build")
    directory = machine.driver_directory
    if directory is None:
        yield error(
            "no directory of DPDK's drivers (dpdk/pmds-*) below /usr",
            "every port is opened by a driver from there, kernel interfaces too",
            "apt-get install libdpdk-dev librte-meta-net librte-mempool-ring23",
        )
        return
    ids = sum(len(driver.ids) for driver in machine.drivers)
    yield ok(f"{len(machine.drivers)} drivers with {ids} PCI ids in /{directory}")
    if not any(name.startswith(POOL_DRIVER) for name in machine.names(directory)):
        why = "without it no packet pool can be made"
        yield error(f"{POOL_DRIVER} is not in /{directory}", why, "apt-get install librte-mempool-ring23")
    for device in _devices(config):
        if not any(device.startswith(driver.name) for driver in machine.drivers):
            why = "a port of the configuration is opened with it"
            yield error(f"no driver in /{directory} is one for {device}", why, "apt-get install librte-meta-net")


def _devices(config: Config | None) -> list[str]:
    """As DPDK names them: a virtual device after its driver, such as net_pcap0."""
    ports = parse(config.forwarder_settings()).ports if config else ()
    virtual = {port.device.split(",")[0] for port in ports if port.driver == "vdev"}
    return sorted(virtual | {f"net_{port.driver}" for port in ports if port.driver in KERNEL_DRIVERS})
