"""Made-up machines for `maglev doctor`: the files of a good one, of which a test spoils some."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from controller.config import loads
from controller.doctor.machine import Machine
from controller.doctor.subjects import diagnose

NIC = "0000:3b:00.0"
ADDRESS = f"sys/bus/pci/devices/{NIC}"
OTHER = "0000:00:1f.6"
CONNECTX = "0000:af:00.0"
PMDS = "usr/lib/x86_64-linux-gnu/dpdk/pmds-23.0"
NODE = "sys/devices/system/node"
CPUS = "sys/devices/system/cpu"
CMDLINE = "quiet intel_iommu=on iommu=pt isolcpus=2-7 nohz_full=2-7 hugepages=1024"
CONFIG = """
node: {name: lb1, tunnel_source: {ipv4: 10.0.2.2}, hash_key: "000102030405060708090a0b0c0d0e0f"}
forwarder:
  ports: [{device: eth1, mtu: 1600}]
  lcores: {steering: 2, workers: [3, 4], muxing: 5}
  idle: spin
bgp:
  local_as: 65002
  router_id: 10.0.2.2
  neighbors: [{address: 10.0.2.1, remote_as: 65001}]
  next_hop: {ipv4: 10.0.2.2}
backend_pools: {web: {backends: [{name: web1, address: 10.0.3.2}]}}
vips: [{name: www, address: 192.0.2.1, port: 80, pools: [web]}]
"""
FACTS: dict[str, Any] = {
    "offloads": {"eth1": {"gro": False, "lro": False, "tso": True, "gso": True}},
    "clock_synchronised": True,
    "reach": {"10.0.2.1": "connected"},
    "modules": {"exabgp": True},
    "runs": [],
}
DRIVERS = {
    "librte_net_ice.so.23.0": {
        "name": "net_ice",
        "kmod": "* igb_uio | uio_pci_generic | vfio-pci",
        "pci_ids": [[0x8086, 0x1592, 0xFFFF, 0xFFFF], [0x8086, 0x1593, 0xFFFF, 0xFFFF]],
    },
    "librte_net_mlx5.so.23.0": {
        "name": "mlx5_eth",
        "kmod": "* ib_uverbs & mlx5_core & mlx5_ib",
        "pci_ids": [[0x15B3, 0x1017, 0xFFFF, 0xFFFF]],
    },
    "librte_net_thunderx.so.23.0": {"name": "net_thunderx", "pci_ids": [[0x177D, 0x0011, 0x177D, 0xA11E]]},
    "librte_net_af_packet.so.23.0": {"name": "net_af_packet"},
    "librte_net_af_xdp.so.23.0": {"name": "net_af_xdp"},
}
FIB_TRIE = """Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 0.0.0.0
        /0 universe UNICAST
     +-- 10.0.2.0/24 2 0 2
        |-- 10.0.2.0
           /24 link UNICAST
        |-- 10.0.2.2
           /32 host LOCAL
     |-- 127.0.0.0
        /8 host LOCAL
"""
ROUTES = (
    "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
    "eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
    "eth1\t0002000A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n"
)


def shared_object(path: Path, *descriptions: object) -> None:
    """A driver file as DPDK builds them: the description is a string among its constants."""
    strings = [f"PMD_INFO_STRING= {json.dumps(text) if not isinstance(text, str) else text}" for text in descriptions]
    source = "".join(
        f"__attribute__((used)) const char info{i}[] = {json.dumps(text)};\n" for i, text in enumerate(strings)
    )
    argv = ["cc", "-shared", "-fPIC", "-nostdlib", "-x", "c", "-", "-o", str(path)]
    subprocess.run(argv, input=source, text=True, check=True)


def _processor() -> dict[str, str]:
    """Two sockets of four cores with one thread each, the NICs at the first one."""
    files = {
        f"{CPUS}/online": "0-15",
        f"{CPUS}/isolated": "2-7",
        f"{CPUS}/nohz_full": "2-7",
        f"{NODE}/node0/cpulist": "0-7",
        f"{NODE}/node1/cpulist": "8-15",
        "proc/cpuinfo": "vendor_id\t: GenuineIntel\nflags\t\t: fpu tsc",
    }
    for cpu in range(16):
        files[f"{CPUS}/cpu{cpu}/topology/thread_siblings_list"] = str(cpu)
        files[f"{CPUS}/cpu{cpu}/cpufreq/scaling_governor"] = "performance"
    for node in (0, 1):
        files |= pages(f"{NODE}/node{node}/hugepages/hugepages-2048kB", 512, 512)
    return files | pages("sys/kernel/mm/hugepages/hugepages-2048kB", 1024, 1024)


def pages(directory: str, total: int, free: int) -> dict[str, str]:
    """Hugepages of one size."""
    return {f"{directory}/nr_hugepages": str(total), f"{directory}/free_hugepages": str(free)}


def meminfo(total: int, free: int) -> str:
    return f"HugePages_Total: {total}\nHugePages_Free: {free}\nHugePages_Rsvd: 0\nHugepagesize: 2048 kB\n"


def nic(address: str, vendor: int, device: int, node: int = 0, kind: str = "0x020000") -> dict[str, str]:
    """A device on PCI."""
    values = {"class": kind, "vendor": hex(vendor), "device": hex(device), "numa_node": str(node)}
    values |= {"subsystem_vendor": "0x8086", "subsystem_device": "0x0001"}
    return {f"sys/bus/pci/devices/{address}/{name}": value for name, value in values.items()}


def interface(name: str, **changes: object) -> dict[str, str]:
    """A kernel interface, which is up."""
    values = {"flags": "0x1003", "carrier": "1", "mtu": "1600", "ifindex": "3", "iflink": "3"} | changes
    return {f"sys/class/net/{name}/{key}": str(value) for key, value in values.items()}


def good() -> dict[str, str]:
    """The files of a machine on which CONFIG runs at its best, with a NIC for DPDK beside it."""
    return {
        "maglev-doctor.json": json.dumps(FACTS),
        "proc/cmdline": CMDLINE,
        "proc/meminfo": meminfo(1024, 1024),
        "proc/mounts": "sysfs /sys sysfs rw 0 0\nhugetlbfs /dev/hugepages hugetlbfs rw,relatime,pagesize=2M 0 0",
        "proc/self/status": "Uid:\t0\t0\t0\t0\nCapEff:\t000001ffffffffff\nCpus_allowed_list:\t0-15\n",
        "proc/self/limits": "Max locked memory         8388608   8388608   bytes\n"
        "Max open files            1024                 524288               files\n",
        "proc/net/fib_trie": FIB_TRIE,
        "proc/net/if_inet6": "00000000000000000000000000000001 01 80 10 80       lo",
        "proc/net/route": ROUTES,
        "proc/net/arp": "IP address HW type Flags HW address Mask Device\n10.0.2.1 0x1 0x2 02:00:00:00:00:01 * eth1",
        "proc/sys/net/ipv4/conf/all/rp_filter": "0",
        "proc/sys/net/ipv4/conf/eth1/rp_filter": "2",
        "proc/sys/net/ipv4/conf/eth1/forwarding": "0",
        "proc/sys/kernel/osrelease": "6.1.0-38-amd64",
        "lib/modules/6.1.0-38-amd64/modules.dep": "kernel/drivers/vfio/pci/vfio-pci.ko: kernel/drivers/vfio/vfio.ko",
        "sys/devices/system/clocksource/clocksource0/current_clocksource": "tsc",
        "sys/module/vfio/parameters/enable_unsafe_noiommu_mode": "N",
        "sys/bus/pci/drivers/vfio-pci/bind": "",
        f"sys/kernel/iommu_groups/17/devices/{NIC}/uevent": "",
        **nic(NIC, 0x8086, 0x1592),
        **nic(OTHER, 0x8086, 0x15BB),
        **nic(CONNECTX, 0x15B3, 0x1017, node=1),
        **nic("0000:00:00.0", 0x8086, 0x2020, kind="0x060000"),
        **interface("eth1"),
        **interface("lo", flags="0x9", mtu=65536, ifindex=1, iflink=1),
        **_processor(),
    }


def good_links() -> dict[str, str]:
    """Links of that machine, with what they lead to."""
    return {
        f"{ADDRESS}/driver": "../../drivers/vfio-pci",
        f"{ADDRESS}/iommu_group": "../../../../kernel/iommu_groups/17",
        f"sys/bus/pci/devices/{OTHER}/driver": "../../drivers/e1000e",
        f"sys/bus/pci/devices/{CONNECTX}/driver": "../../drivers/mlx5_core",
        "sys/class/net/eth1/device": f"../../../bus/pci/devices/{OTHER}",
    }


def build(root: Path, drivers: Path | None, files: dict[str, str], links: dict[str, str]) -> None:
    """Write the machine; its drivers are copies of those in `drivers`, or its directory is empty."""
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    for path, target in links.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        os.symlink(target, root / path)
    if drivers is None:
        (root / PMDS).mkdir(parents=True)
    else:
        shutil.copytree(drivers, root / PMDS, symlinks=True)


def make_drivers(directory: Path) -> None:
    """The driver files of a good machine."""
    for name, description in DRIVERS.items():
        shared_object(directory / name, description)
        (directory / name.removesuffix(".0")).symlink_to(name)
    (directory / "librte_mempool_ring.so.23.0").touch()


class Tree:
    """A made-up machine, good at first; written when it is asked for."""

    def __init__(self, root: Path, drivers: Path | None) -> None:
        self.root = root
        self.drivers = drivers
        self.files = good()
        self.links = good_links()
        self.config = CONFIG
        self.nics: tuple[str, ...] = (NIC,)

    def fact(self, **changes: object) -> None:
        """Change what no file tells."""
        self.files["maglev-doctor.json"] = json.dumps(json.loads(self.files["maglev-doctor.json"]) | changes)

    def edit(self, *edits: tuple[str, str]) -> None:
        """Edit the configuration."""
        for old, new in edits:
            assert self.config.count(old) == 1, old
            self.config = self.config.replace(old, new)

    def drop(self, beginning: str) -> None:
        """Take away every file and link whose path begins so."""
        for paths in (self.files, self.links):
            gone = [path for path in paths if path.startswith(beginning)]
            for path in gone:
                del paths[path]

    def write(self) -> Path:
        """The root of the machine on disk."""
        build(self.root, self.drivers, self.files, self.links)
        return self.root

    def answer(self) -> dict[str, Any]:
        """What the doctor says of it, with the configuration where there is one."""
        machine = Machine(self.write(), self.nics)
        return diagnose(machine, loads(self.config) if self.config else None)

    def wrong(self) -> list[tuple[str, str, str]]:
        """Subject, level and sentence of every finding that is not ok."""
        findings = self.answer()["findings"]
        return [(f["subject"], f["level"], f["says"]) for f in findings if f["level"] != "ok"]
