"""Every subject of `maglev doctor`, as rows: what is spoiled of a good machine, and all that is then found wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from machine_tree import (
    ADDRESS,
    CMDLINE,
    CONNECTX,
    CPUS,
    FIB_TRIE,
    NIC,
    NODE,
    OTHER,
    PMDS,
    Tree,
    interface,
    meminfo,
    nic,
    pages,
)

Spoil = Callable[[Tree], object]
Found = tuple[str, str, str]


@dataclass(frozen=True)
class Row:
    """`found`: subject, level and words of everything that is not ok."""

    what: str
    spoil: Spoil
    found: tuple[Found, ...] = ()


def file(path: str, text: str) -> Spoil:
    return lambda tree: tree.files.update({path: text})


def files(changes: dict[str, str]) -> Spoil:
    return lambda tree: tree.files.update(changes)


def link(path: str, target: str) -> Spoil:
    return lambda tree: tree.links.update({path: target})


def edit(old: str, new: str) -> Spoil:
    return lambda tree: tree.edit((old, new))


def fact(**changes: object) -> Spoil:
    return lambda tree: tree.fact(**changes)


def gone(beginning: str) -> Spoil:
    return lambda tree: tree.drop(beginning)


def both(*spoils: Spoil) -> Spoil:
    def spoil(tree: Tree) -> None:
        for each in spoils:
            each(tree)

    return spoil


def offloads(**interfaces: dict[str, bool]) -> Spoil:
    return fact(offloads=interfaces)


def queues(number: int) -> Spoil:
    return fact(receive_queues={"eth1": number})


def nics(*addresses: str) -> Spoil:
    return lambda tree: setattr(tree, "nics", addresses)


QUIET = {"gro": False, "lro": False}
SIZE = "hugepages-2048kB"
NODE0, NODE1 = (f"{NODE}/node{node}/hugepages/{SIZE}" for node in (0, 1))
V4, V6 = "proc/sys/net/ipv4", "proc/sys/net/ipv6"
TWO_PORTS = both(
    edit("ports: [{device: eth1, mtu: 1600}]", "ports: [{device: eth1, mtu: 1600}, {device: eth2, mtu: 1600}]"),
    files(interface("eth2", ifindex=4, iflink=4)),
    file(f"{V4}/conf/eth2/forwarding", "0"),
    offloads(eth1=QUIET, eth2=QUIET),
)
UNDER_XDP = edit("{device: eth1, mtu: 1600}", "{device: eth1, driver: af_xdp, mtu: 1600}")
V6_VIP = both(
    edit("next_hop: {ipv4: 10.0.2.2}", 'next_hop: {ipv4: 10.0.2.2, ipv6: "fd00:2::2"}'),
    edit("vips: [", 'vips: [{name: six, address: "2001:db8::1", port: 80, pools: [web]}, '),
    file("proc/net/if_inet6", "fd000002000000000000000000000002 03 40 00 80 eth1"),
)

ROWS = [
    # kernel
    Row("words of no interest", file("proc/cmdline", "quiet ro")),
    Row(
        "fewer hugepages than at boot",
        file("proc/cmdline", CMDLINE.replace("hugepages=1024", "hugepages=2000")),
        (("kernel", "warning", "2000 hugepages of 2048 kB were asked for at boot, and there are 1024"),),
    ),
    Row(
        "hugepages of two sizes, one by node",
        file("proc/cmdline", f"{CMDLINE} hugepagesz=1G hugepages=0:2,1:3"),
        (("kernel", "warning", "5 hugepages of 1048576 kB were asked for at boot, and there are 0"),),
    ),
    # DPDK
    Row(
        "no drivers at all",
        lambda tree: setattr(tree, "drivers", None),
        (
            ("DPDK", "error", "librte_mempool_ring is not in"),
            ("DPDK", "error", "is one for net_af_packet"),
            ("NICs", "error", "is not supported"),
        ),
    ),
    Row(
        "no driver for a virtual device",
        both(edit("device: eth1", "device: net_pcap0"), nics()),
        (("DPDK", "error", f"no driver in /{PMDS} is one for net_pcap0"),),
    ),
    # hugepages
    Row("none asked for", both(edit("idle: spin", "idle: spin\n  hugepages: false"), file("proc/meminfo", "")), ()),
    Row("the node runs", both(file("proc/meminfo", meminfo(64, 0)), fact(runs=["lb1"]))),
    Row(
        "a kernel without",
        file("proc/meminfo", "MemTotal: 1 kB"),
        (("hugepages", "error", "the kernel has no hugepages"),),
    ),
    Row("meminfo is not there", gone("proc/meminfo"), (("hugepages", "error", "does not tell how many"),)),
    Row("others have them", file("proc/meminfo", meminfo(1024, 5)), (("hugepages", "error", "and 10 MB are free"),)),
    Row(
        "they are on the other node",
        files(pages(NODE0, 8, 8)),
        (("hugepages", "warning", "only 16 MB of them are on NUMA node 0"),),
    ),
    Row("no hugetlbfs", file("proc/mounts", ""), (("hugepages", "warning", "no hugetlbfs with pages of 2 MB"),)),
    Row(
        "a hugetlbfs of the other size",
        file("proc/mounts", "none /dev/hugepages hugetlbfs rw,pagesize=1024M 0 0"),
        (("hugepages", "warning", "no hugetlbfs with pages of 2 MB"),),
    ),
    # IOMMU
    Row("off, and nobody needs it", both(nics(), gone("sys/kernel/iommu_groups"), gone("sys/bus/pci/drivers"))),
    Row(
        "off, and the NIC stays with the kernel",
        both(nics(CONNECTX), gone("sys/kernel/iommu_groups")),
        (("topology", "warning", f"{CONNECTX} is on NUMA node 1"),),
    ),
    Row(
        "off, and vfio told to do without",
        both(gone("sys/kernel/iommu_groups"), file("sys/module/vfio/parameters/enable_unsafe_noiommu_mode", "Y")),
        (("IOMMU", "warning", "vfio works without it"),),
    ),
    Row("vfio-pci not loaded", gone("sys/bus/pci/drivers"), (("IOMMU", "error", "vfio-pci is not loaded"),)),
    Row(
        "vfio-pci not built",
        both(gone("sys/bus/pci/drivers"), gone("lib/modules")),
        (("IOMMU", "error", "this kernel has no vfio-pci"),),
    ),
    # NICs
    Row("no such NIC", nics("0000:99:00.0"), (("NICs", "error", "there is no NIC 0000:99:00.0"),)),
    Row("not a NIC", nics("0000:00:00.0"), (("NICs", "error", "there is no NIC 0000:00:00.0"),)),
    Row(
        "bound to the kernel",
        link(f"{ADDRESS}/driver", "../../drivers/ice"),
        (("NICs", "error", f"{NIC} is bound to ice, not to vfio-pci"),),
    ),
    Row("bound to nothing", gone(f"{ADDRESS}/driver"), (("NICs", "error", f"{NIC} is bound to nothing"),)),
    Row(
        "a virtual machine without an IOMMU, on Debian's kernel",
        both(
            gone("sys/kernel/iommu_groups"),
            gone("sys/module/vfio"),
            file("proc/cpuinfo", "vendor_id\t: GenuineIntel\nflags\t\t: fpu tsc hypervisor"),
            link(f"{ADDRESS}/driver", "../../drivers/ice"),
        ),
        (("IOMMU", "error", "the IOMMU is off"), ("NICs", "error", f"{NIC} is bound to ice, not to uio_pci_generic")),
    ),
    Row(
        "bound to a driver that does without an IOMMU, which is off",
        both(gone("sys/kernel/iommu_groups"), link(f"{ADDRESS}/driver", "../../drivers/uio_pci_generic")),
        (("IOMMU", "warning", f"uio_pci_generic hands out {NIC} without an IOMMU"),),
    ),
    Row(
        "the one with the default route",
        both(link(f"{ADDRESS}/driver", "../../drivers/ice"), file(f"{ADDRESS}/net/eth0/mtu", "1500")),
        (("NICs", "error", "is bound to ice"), ("NICs", "warning", "the default route goes by eth0")),
    ),
    Row(
        "a bifurcated one that was bound to vfio",
        both(
            nics(CONNECTX),
            file(f"sys/bus/pci/devices/{CONNECTX}/numa_node", "0"),
            link(f"sys/bus/pci/devices/{CONNECTX}/driver", "../../drivers/vfio-pci"),
        ),
        (("NICs", "error", f"{CONNECTX} is bound to vfio-pci"),),
    ),
    Row(
        "another device in its group",
        both(
            files(nic("0000:3b:00.1", 0x8086, 0x1592)),
            link("sys/bus/pci/devices/0000:3b:00.1/driver", "../../drivers/ice"),
            file("sys/kernel/iommu_groups/17/devices/0000:3b:00.1/uevent", ""),
        ),
        (("NICs", "error", f"0000:3b:00.1, in one IOMMU group with {NIC}, is bound to ice"),),
    ),
    Row(
        "a bridge in its group",
        both(
            files(nic("0000:3a:00.0", 0x8086, 0x2030, kind="0x060400")),
            link("sys/bus/pci/devices/0000:3a:00.0/driver", "../../drivers/pcieport"),
            file("sys/kernel/iommu_groups/17/devices/0000:3a:00.0/uevent", ""),
        ),
    ),
    Row("no NIC on PCI", both(nics(), gone("sys/bus/pci"))),
    # CPUs
    Row(
        "an offline CPU",
        file(f"{CPUS}/online", "0-4,6-15"),
        (("CPUs", "error", "CPU 5 of forwarder.lcores is offline, not there, or not in the cpuset"),),
    ),
    Row(
        "isolated CPUs, off which the shell was started",
        file("proc/self/status", "Uid: 0 0 0 0\nCpus_allowed_list: 0-1,8-15"),
    ),
    Row(
        "CPUs that the container does not have",
        both(
            file("proc/self/status", "Uid: 0 0 0 0\nCpus_allowed_list: 0-3"),
            file("proc/self/cgroup", "0::/docker/1f0c\n"),
            file("sys/fs/cgroup/cpuset.cpus.effective", "0-3\n"),
        ),
        (("CPUs", "error", "CPU 4-5 of forwarder.lcores is offline, not there, or not in the cpuset"),),
    ),
    Row(
        "CPUs that the slice of the shell does not have",
        both(
            file("proc/self/status", "Uid: 0 0 0 0\nCpus_allowed_list: 2-4"),
            file("proc/self/cgroup", "0::/user.slice\n"),
            file("sys/fs/cgroup/user.slice/cpuset.cpus.effective", "2-4\n"),
            file("sys/fs/cgroup/cpuset.cpus.effective", "0-15\n"),
        ),
        (
            ("CPUs", "error", "CPU 5 of forwarder.lcores is offline, not there, or not in the cpuset"),
            ("CPUs", "warning", "stages spin on every CPU"),
        ),
    ),
    Row(
        "CPUs that are not isolated",
        file(f"{CPUS}/isolated", "4-7"),
        (("CPUs", "warning", "CPU 2-3 is not isolated"),),
    ),
    Row("CPUs with a tick", file(f"{CPUS}/nohz_full", ""), (("CPUs", "warning", "CPU 2-5 has the timer tick"),)),
    Row(
        "isolated, and asleep",
        edit("idle: spin", "idle: sleep"),
        (("CPUs", "warning", "the CPUs 2-5 are isolated, and with `idle: sleep` their stages sleep"),),
    ),
    Row("asleep, and not isolated", both(edit("idle: spin", "idle: sleep"), file(f"{CPUS}/isolated", ""))),
    Row(
        "no CPU left over",
        file(f"{CPUS}/online", "2-5"),
        (("CPUs", "warning", "stages spin on every CPU"),),
    ),
    Row(
        "a governor that saves",
        files({f"{CPUS}/cpu{cpu}/cpufreq/scaling_governor": "schedutil" for cpu in (3, 9)}),
        (("CPUs", "warning", "the frequency governor of CPU 3 is schedutil"),),
    ),
    Row("no governor", lambda tree: [tree.drop(f"{CPUS}/cpu{cpu}/cpufreq") for cpu in range(16)]),
    Row(
        "with rss only workers count",
        both(edit("idle: spin", "idle: spin\n  steering: rss"), file(f"{CPUS}/isolated", "3-4")),
    ),
    # topology
    Row(
        "two on one core",
        files({f"{CPUS}/cpu{cpu}/topology/thread_siblings_list": "3,4" for cpu in (3, 4)}),
        (("topology", "warning", "stages run on hyper-threads of one core: CPU 3-4"),),
    ),
    Row(
        "siblings of stages that are free",
        files({f"{CPUS}/cpu{c}/topology/thread_siblings_list": f"{c},{c + 8}" for c in range(8)}),
    ),
    Row(
        "stages on two nodes",
        both(
            edit("workers: [3, 4]", "workers: [3, 9]"),
            file(f"{CPUS}/isolated", "2-9"),
            file(f"{CPUS}/nohz_full", "2-9"),
        ),
        (
            ("topology", "warning", "the stages are on several NUMA nodes: 0-1"),
            ("topology", "warning", "eth1 is on NUMA node 0, and CPU 9 is not"),
            ("topology", "warning", f"{NIC} is on NUMA node 0, and CPU 9 is not"),
        ),
    ),
    Row(
        "an interface on the other node",
        file(f"sys/bus/pci/devices/{OTHER}/numa_node", "1"),
        (("topology", "warning", "eth1 is on NUMA node 1, and CPU 2-5 is not"),),
    ),
    Row(
        "a virtio interface on the other node",
        both(
            file(f"sys/bus/pci/devices/{OTHER}/virtio0/status", "0x7"),
            link("sys/class/net/eth1/device", f"../../../bus/pci/devices/{OTHER}/virtio0"),
            file(f"sys/bus/pci/devices/{OTHER}/numa_node", "1"),
        ),
        (("topology", "warning", "eth1 is on NUMA node 1, and CPU 2-5 is not"),),
    ),
    Row("a node that nobody knows", file(f"{ADDRESS}/numa_node", "-1")),
    # interfaces
    Row("no such interface", gone("sys/class/net/eth1"), (("interfaces", "error", "there is no interface eth1"),)),
    Row("down", file("sys/class/net/eth1/flags", "0x1002"), (("interfaces", "error", "eth1 is down"),)),
    Row("no link", file("sys/class/net/eth1/carrier", "0"), (("interfaces", "error", "eth1 has no link"),)),
    Row(
        "merging",
        offloads(eth1={"gro": True, "lro": True}),
        (("interfaces", "error", "gro and lro of eth1 merge packets that come in"),),
    ),
    Row(
        "merging is not known",
        offloads(eth1={"gro": False}),
        (("interfaces", "warning", "whether lro of eth1 is on"),),
    ),
    Row(
        "one queue under af_xdp",
        both(UNDER_XDP, queues(1)),
    ),
    Row(
        "several queues under af_xdp",
        both(UNDER_XDP, queues(4)),
        (("interfaces", "error", "eth1 has 4 receive queues"),),
    ),
    Row(
        "queues under af_xdp that nobody knows",
        UNDER_XDP,
        (("interfaces", "warning", "how many receive queues eth1 has is not known"),),
    ),
    Row("several queues under af_packet", queues(4)),
    Row(
        "a veth whose other end is here and does not cut",
        both(
            files(interface("eth1", ifindex=3, iflink=9) | interface("far", ifindex=9, iflink=3)),
            offloads(eth1=QUIET, far={"tso": True, "gso": True}),
        ),
        (("interfaces", "warning", "tso and gso of far, the other end of eth1, send packets larger than the MTU"),),
    ),
    # MTU
    Row(
        "a link that takes less",
        file("sys/class/net/eth1/mtu", "1500"),
        (("MTU", "error", "the link of eth1 takes 1500 bytes, and the configuration says 1600"),),
    ),
    Row(
        "no room for the outer headers",
        edit("mtu: 1600", "mtu: 1523"),
        (("MTU", "warning", "a full packet of 1500 bytes and 24 of outer headers do not fit the 1523 of eth1"),),
    ),
    Row("just enough room", edit("mtu: 1600", "mtu: 1524")),
    Row(
        "IPv6 takes more",
        both(
            edit("mtu: 1600", "mtu: 1543"),
            edit("tunnel_source: {ipv4: 10.0.2.2}", 'tunnel_source: {ipv6: "fd00:2::2"}'),
            edit("address: 10.0.3.2", 'address: "fd00:3::2"'),
            file("proc/net/if_inet6", "fd000002000000000000000000000002 03 40 00 80 eth1"),
        ),
        (("MTU", "warning", "1500 bytes and 44 of outer headers do not fit the 1543"),),
    ),
    # addresses
    Row(
        "a vip on the machine",
        file("proc/net/fib_trie", f"{FIB_TRIE}     |-- 192.0.2.0\n        /24 host LOCAL\n"),
        (("addresses", "error", "the vip 192.0.2.1 is an address of this machine"),),
    ),
    Row(
        "a vip of IPv6 on the machine",
        both(
            V6_VIP,
            file(
                "proc/net/if_inet6",
                "20010db8000000000000000000000001 01 80 10 80 lo\nfd000002000000000000000000000002 03 40 00 80 eth1",
            ),
        ),
        (("addresses", "error", "the vip 2001:db8::1 is an address of this machine"),),
    ),
    Row(
        "not the node's addresses",
        file("proc/net/fib_trie", ""),
        (
            ("addresses", "warning", "bgp.next_hop 10.0.2.2 is no address of this machine"),
            ("addresses", "warning", "node.tunnel_source 10.0.2.2 is no address of this machine"),
        ),
    ),
    Row(
        "the kernel forwards",
        file(f"{V4}/conf/eth1/forwarding", "1"),
        (("addresses", "error", "the kernel forwards packets too: net.ipv4.conf.eth1.forwarding is 1"),),
    ),
    Row("the kernel forwards IPv6, and no vip is", file(f"{V6}/conf/all/forwarding", "1")),
    Row(
        "the kernel forwards IPv6",
        both(V6_VIP, file(f"{V6}/conf/all/forwarding", "1")),
        (("addresses", "error", "net.ipv6.conf.all.forwarding is 1"),),
    ),
    Row(
        "the kernel forwards by a VLAN",
        both(
            edit("device: eth1", "device: eth1.7"),
            files(interface("eth1.7")),
            offloads(**{"eth1.7": QUIET}),
            file(f"{V4}/conf/eth1.7/forwarding", "1"),
        ),
        (("addresses", "error", "net.ipv4.conf.eth1/7.forwarding is 1"),),
    ),
    Row("a strict filter at the only port", file(f"{V4}/conf/eth1/rp_filter", "1")),
    Row("two ports", TWO_PORTS),
    Row(
        "a strict filter at one of two",
        both(TWO_PORTS, file(f"{V4}/conf/all/rp_filter", "1")),
        (("addresses", "warning", "rp_filter of eth2 is strict"),),
    ),
    # limits
    Row(
        "not root",
        file("proc/self/status", "Uid:\t1000\t1000\t1000\t1000\nCapEff:\t0\nCpus_allowed_list:\t0-15"),
        (
            ("limits", "warning", "hugepages need root; packets on interfaces need CAP_NET_ADMIN and CAP_NET_RAW"),
            ("limits", "warning", "8 MB of memory may be locked"),
        ),
    ),
    Row(
        "too few files",
        file("proc/self/limits", "Max open files            200                200               files"),
        (("limits", "error", "200 files may be open at a time, and 0 health checks take one each"),),
    ),
    Row("any number of files", file("proc/self/limits", "Max open files    unlimited     unlimited    files")),
    # clock
    Row("not kept right", fact(clock_synchronised=False), (("clock", "warning", "nothing keeps it right"),)),
    Row("nobody knows", fact(clock_synchronised=None), (("clock", "warning", "whether it is kept right is not"),)),
    Row(
        "read from afar",
        file("sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet"),
        (("clock", "warning", "the kernel reads it from hpet"),),
    ),
    # BGP
    Row("nothing is announced", both(edit("bgp:\n", "bgp:\n  speaker: none\n"), fact(modules={}, reach={}))),
    Row("no BIRD", edit("bgp:\n", "bgp:\n  speaker: bird\n"), (("BGP", "error", "BIRD is not installed"),)),
    Row("no ExaBGP", fact(modules={"exabgp": False}), (("BGP", "error", "ExaBGP is not installed"),)),
    Row("ExaBGP is not known", fact(modules={}), (("BGP", "warning", "whether ExaBGP is installed is not known"),)),
    Row("refused", fact(reach={"10.0.2.1": "refused"}), (("BGP", "warning", "router 10.0.2.1 refuses connections"),)),
    Row("silent", fact(reach={"10.0.2.1": "silent"}), (("BGP", "warning", "10.0.2.1 does not answer at port 179"),)),
    Row(
        "no answer to ARP",
        both(
            fact(reach={"10.0.2.1": "silent"}),
            file("proc/net/arp", "10.0.2.1   0x1   0x0   00:00:00:00:00:00  *  eth1"),
        ),
        (("BGP", "warning", "router 10.0.2.1 does not answer ARP"),),
    ),
    Row(
        "no route", fact(reach={"10.0.2.1": "no route"}), (("BGP", "error", "there is no route to router 10.0.2.1"),)
    ),
    Row("reach is not known", fact(reach={}), (("BGP", "warning", "whether router 10.0.2.1 can be reached"),)),
    Row("a router with a password is not asked", edit("remote_as: 65001", "remote_as: 65001, password: secret")),
    Row("the node runs, and has the session", both(fact(runs=["lb1"], reach={}))),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.what)
def test_exactly_what_is_wrong_is_found(tree: Tree, row: Row) -> None:
    row.spoil(tree)
    wrong = tree.wrong()
    assert len(wrong) == len(row.found), wrong
    for (subject, level, says), (subject_wanted, level_wanted, words) in zip(wrong, row.found, strict=True):
        assert (subject, level) == (subject_wanted, level_wanted), wrong
        assert words in says


@pytest.mark.parametrize("row", [row for row in ROWS if row.found], ids=lambda row: row.what)
def test_what_is_wrong_has_a_reason_and_a_mend(tree: Tree, row: Row) -> None:
    row.spoil(tree)
    for finding in tree.answer()["findings"]:
        assert bool(finding["why"]) == bool(finding["mend"]) == (finding["level"] != "ok"), finding


def test_every_subject_has_rows_of_every_level_that_it_can_have() -> None:
    seen = {(subject, level) for row in ROWS for subject, level, _ in row.found}
    only_errors, only_warnings = {"DPDK"}, {"kernel", "clock", "topology"}
    for subject in {subject for subject, _ in seen}:
        levels = {level for other, level in seen if other == subject}
        wanted = (
            {"error"} if subject in only_errors else {"warning"} if subject in only_warnings else {"error", "warning"}
        )
        assert levels == wanted, subject


MENDS = [
    ("AMD", {"proc/cpuinfo": "vendor_id : AuthenticAMD"}, "switch the IOMMU (AMD-Vi) on in the firmware"),
    ("AMD, told not to", {"proc/cpuinfo": "AuthenticAMD", "proc/cmdline": "amd_iommu=off"}, "take amd_iommu=off off"),
    ("Intel, told to", {"proc/cpuinfo": "GenuineIntel"}, "switch VT-d on in the firmware"),
    ("Intel", {"proc/cpuinfo": "GenuineIntel", "proc/cmdline": ""}, "add intel_iommu=on iommu=pt to the kernel"),
    ("a virtual machine", {"proc/cpuinfo": "GenuineIntel\nflags : fpu hypervisor"}, "a virtual IOMMU"),
]


@pytest.mark.parametrize(("changes", "words"), [mend[1:] for mend in MENDS], ids=[mend[0] for mend in MENDS])
def test_the_iommu_is_switched_on_as_the_machine_wants_it(tree: Tree, changes: dict[str, str], words: str) -> None:
    tree.drop("sys/kernel/iommu_groups")
    tree.files |= changes
    (mend,) = (f["mend"] for f in tree.answer()["findings"] if f["says"] == "the IOMMU is off")
    assert words in mend


def test_without_a_configuration_nics_and_interfaces_are_told_and_not_judged(tree: Tree) -> None:
    tree.config, tree.nics = "", ()
    tree.fact(offloads={"eth1": {"gro": True}})
    tree.drop("sys/kernel/iommu_groups")
    tree.links[f"{ADDRESS}/driver"] = "../../drivers/ice"
    answer = tree.answer()
    says = "\n".join(finding["says"] for finding in answer["findings"])
    assert answer["errors"] == answer["warnings"] == 0
    assert f"{NIC} [8086:1592]: bound to ice; net_ice of DPDK could have it, bound to vfio-pci" in says
    assert f"{OTHER} [8086:15bb]: bound to e1000e; DPDK has no driver for it here" in says
    assert f"{CONNECTX} [15b3:1017]: bound to mlx5_core; mlx5_eth of DPDK can have it as it is" in says
    assert "eth1: up, MTU 1600; as a port it would need gro off" in says


def test_without_a_configuration_lacking_hugepages_are_a_warning(tree: Tree) -> None:
    tree.config, tree.nics = "", ()
    tree.files["proc/meminfo"] = meminfo(0, 0)
    (found,) = tree.wrong()
    assert found[:2] == ("hugepages", "warning")
    assert "by a node with the default settings" in found[2]
