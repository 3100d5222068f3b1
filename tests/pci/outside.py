"""What is around the machine: the laboratory's client, router and backends, under names of their own."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from lab import laboratory, namespaces, nodes, topology, traffic
from lab.topology import BACKENDS, NODES, ROUTER, TUNNEL_MTU, VIP, Host

namespaces.PREFIX = "maglev-pci-"  # a laboratory that is up is another one
NODE = NODES[0]
HOLD_TIME = 60  # seconds; whatever is timed has time, since the machine is an emulated one


@dataclass(frozen=True)
class Nic:
    """A kind of NIC: QEMU's description of it, and what a node makes of it."""

    name: str
    device: str
    driver: str  # DPDK's
    queues: int = 1
    forwarder: Mapping[str, Any] = field(default_factory=dict)


NICS = (
    Nic("e1000e", "e1000e", "net_e1000_em"),
    Nic("vmxnet3", "vmxnet3", "net_vmxnet3"),
    Nic(
        "virtio",
        "virtio-net-pci,disable-legacy=on,iommu_platform=on,mq=on,rss=on,vectors=6",
        "net_virtio",
        queues=2,
        forwarder={"steering": "rss", "lcores": {"steering": 0, "workers": [0, 1], "muxing": 0}},
    ),
)


class Site:
    """All of it, gone after `close`. The router has the other end of the wire to the machine's NIC."""

    work = Path("/run/maglev-pci")

    def __init__(self) -> None:
        self._processes: list[subprocess.Popen[str]] = []
        self.close()  # what a run that was killed has left
        self.work.mkdir()
        traffic.LOG = self.work / "client.log"
        topology.build(nodes=())
        config = self.work / "bird.conf"
        config.write_text(laboratory.ROUTER_CONFIG.read_text().replace("hold time 9;", f"hold time {HOLD_TIME};"))
        bird = ["bird", "-f", "-c", str(config), "-s", str(self.work / "bird.ctl")]
        self._processes.append(ROUTER.start(bird, self.work / "router.log"))
        for backend in BACKENDS:
            self._start(backend, "lab.backend", backend.name)
            if not topology.decapsulates_itself(backend):
                self._start(backend, "lab.decap", topology.DECAP_DEVICE)

    def connect(self) -> None:
        """Give the router its end of the wire: a tap that QEMU makes as it starts, and takes away as it ends."""
        ROUTER.ip("link", "set", NODE.name, "mtu", str(TUNNEL_MTU), "up")
        ROUTER.ip("address", "add", f"{NODE.gateway}/{NODE.interface.network.prefixlen}", "dev", NODE.name)

    def announced(self) -> bool:
        """Whether the router sends the vip to the node."""
        return topology.next_hops() == {str(NODE.address)}

    def close(self) -> None:
        """End every process, the machine too if it runs, and remove the namespaces."""
        namespaces.remove_all()
        for process in self._processes:
            process.wait()
        if self.work.exists():
            shutil.rmtree(self.work)

    def _start(self, host: Host, module: str, argument: str) -> None:
        words = [sys.executable, "-m", module, argument]
        self._processes.append(host.namespace.start(words, self.work / f"{host.name}.log"))


def configuration(nic: Nic, address: str) -> str:
    """The laboratory's first node, with a NIC on PCI as its port."""
    config = yaml.safe_load(nodes.TEMPLATE.read_text())
    config["forwarder"] |= {"ports": [{"device": address, "driver": "pci", "mtu": TUNNEL_MTU}], **nic.forwarder}
    config["bgp"]["lease"] = "20s"  # twice that is the time that the speaker has to start
    config["bgp"]["neighbors"][0]["hold_time"] = f"{HOLD_TIME}s"
    config["health_checks"]["web-http"] |= {"interval": "2s", "timeout": "2s"}
    assert [vip["address"] for vip in config["vips"]] == [str(VIP)]
    return str(yaml.safe_dump(config, sort_keys=False))
