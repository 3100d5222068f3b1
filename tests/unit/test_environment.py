import errno
import os
from collections.abc import Callable
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from forwarder import _dataplane, environment
from forwarder.environment import Hugepages, control_cpus, needed_megabytes
from forwarder.settings import PortSettings, Refused, Settings

SETTINGS = Settings(
    node="lb1",
    hash_key=bytes(range(16)),
    sources={4: ip_address("10.0.2.2")},
    ports=(PortSettings("net_null0", "vdev", 1500, {}, None),),
    steering="software",
    steering_cpu=0,
    worker_cpus=(1, 2),
    muxing_cpu=0,
    idle="sleep",
    packet_pool=16384,
    ring_size=2048,
    connection_entries=1 << 20,
    connection_seconds=(10, 7200, 10, 60),
    hugepages=False,
    fingerprint="",
)
ON_A_NIC = (PortSettings("eth1", "af_packet", 1500, {}, None),)
PCI_PORT = PortSettings("0000:3b:00.0", "pci", 1500, {}, None, "maglev0")


def meminfo(free: int, kilobytes: int = 2048) -> str:
    return (
        "MemTotal:       16000000 kB\nHugePages_Total:     999\n"
        f"HugePages_Free:      {free}\nHugePages_Rsvd:        0\nHugepagesize:    {kilobytes:>7} kB\nHugetlb:  0 kB\n"
    )


@pytest.mark.parametrize(
    ("text", "megabytes"),
    [
        (meminfo(0), 0),
        (meminfo(64), 128),
        (meminfo(3, 1048576), 3072),
        ("MemTotal: 16000000 kB\n", 0),
        ("", 0),
        ("no colon here\n", 0),
    ],
)
def test_free_hugepages_are_read_from_meminfo(text: str, megabytes: int) -> None:
    assert Hugepages.read(text).free_megabytes == megabytes


def test_this_machine_s_meminfo_can_be_read() -> None:
    assert Hugepages.read(environment.MEMINFO.read_text()).free_megabytes >= 0


@pytest.mark.parametrize(
    ("pages", "wanted"),
    [
        (Hugepages(total=0, free=0, kilobytes=2048), 50),
        (Hugepages(total=64, free=0, kilobytes=2048), 114),
        (Hugepages(total=64, free=20, kilobytes=2048), 94),
        (Hugepages(total=2, free=0, kilobytes=1048576), 3),
        (Hugepages(total=0, free=0, kilobytes=0), 50),
    ],
)
def test_the_advice_keeps_what_others_have(pages: Hugepages, wanted: int) -> None:
    assert pages.wanted(100) == wanted


def test_promised_hugepages_are_not_free() -> None:
    assert Hugepages.read(meminfo(64).replace("Rsvd:        0", "Rsvd:       60")).free == 4


@pytest.mark.parametrize(
    ("pool", "tables", "least"),
    [(16384, 0, 38), (16384, 52 << 20, 38 + 52), (262144, 416 << 20, 608 + 416), (1024, 0, 2)],
)
def test_memory_covers_packets_and_tables_that_live_nowhere_else(pool: int, tables: int, least: int) -> None:
    assert least <= needed_megabytes(pool, True, tables) <= 2 * least + 20


@pytest.mark.parametrize(
    ("allowed", "stages", "left"),
    [
        ({0, 1, 2, 3}, [1, 2], {0, 3}),
        ({0, 1, 2, 3}, [1, 2, 3], {0, 1, 2, 3}),  # one alone would queue behind itself
        ({0, 1}, [0, 1], {0, 1}),
        ({0, 1}, [0, 0, 0], {0, 1}),
        ({4, 5, 6}, [4], {5, 6}),
        ({0}, [0], {0}),
    ],
)
def test_control_threads_keep_off_the_stages_cpus_where_they_can(
    allowed: set[int], stages: list[int], left: set[int]
) -> None:
    assert control_cpus(allowed, stages) == left


class Machine:
    """What `start` asks of the machine and does to it."""

    def __init__(self) -> None:
        self.arguments: list[str] | None = None
        self.affinity = {0, 1, 2, 3}
        self.cpuset = {0, 1, 2, 3}
        self.error: Exception | None = None

    def initialize(self, arguments: list[str]) -> None:
        self.arguments = arguments
        self.affinity = {0}  # as EAL does
        if self.error is not None:
            raise self.error

    def ask(self, cpus: set[int]) -> None:
        """As the kernel does: what the cpuset has not is left out without a word, and nothing left is an error."""
        if not cpus & self.cpuset:
            raise OSError(errno.EINVAL, "Invalid argument")
        self.affinity = cpus & self.cpuset

    def option(self, name: str) -> str:
        assert self.arguments is not None
        return self.arguments[self.arguments.index(name) + 1]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Machine:
    machine = Machine()
    (tmp_path / "meminfo").write_text(meminfo(512))
    monkeypatch.setattr(environment, "MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(_dataplane, "initialize", machine.initialize)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(machine.affinity))
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, cpus: machine.ask(set(cpus)))
    return machine


def test_stages_are_lcores_from_one_and_the_control_thread_floats(machine: Machine) -> None:
    assert environment.start(SETTINGS) == [1, 2, 3, 4]
    assert machine.option("--lcores") == "0@(0,1,2,3),1@0,2@1,3@2,4@0"
    assert int(machine.option("-m")) == needed_megabytes(16384, hugepages=False)


def test_no_pci_device_is_touched_and_no_file_is_left(machine: Machine) -> None:
    environment.start(SETTINGS)
    assert machine.arguments is not None
    assert {"--no-pci", "--no-telemetry", "--no-huge", "--no-shconf"} <= set(machine.arguments)
    environment.start(replace(SETTINGS, hugepages=True))
    assert "--in-memory" in machine.arguments
    assert "--no-huge" not in machine.arguments


def test_a_port_on_pci_lets_dpdk_see_the_bus_and_take_nothing_by_itself(machine: Machine) -> None:
    environment.start(replace(SETTINGS, hugepages=True, ports=(PCI_PORT,)))
    assert machine.arguments is not None
    assert "--no-pci" not in machine.arguments
    assert machine.option("-a") == "0000:00:00.0"
    assert machine.option("-m"), "with one NUMA node it does not matter where"


def test_memory_is_taken_from_the_numa_node_of_the_nic(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment.pci, "numa_node", lambda ports: 1)
    environment.start(replace(SETTINGS, hugepages=True, ports=(PCI_PORT,)))
    assert machine.arguments is not None
    assert "-m" not in machine.arguments
    assert machine.option("--socket-mem") == f"0,{needed_megabytes(16384, hugepages=True)}"


def test_isolated_cpus_are_asked_for_and_only_stages_go_there(machine: Machine) -> None:
    """With isolcpus=2,3 a process is started on the others."""
    machine.affinity = {0, 1}
    environment.start(replace(SETTINGS, steering_cpu=1, worker_cpus=(2, 3), muxing_cpu=1))
    assert machine.option("--lcores") == "0@(0,1),1@1,2@2,3@3,4@1"
    assert machine.affinity == {0, 1}, "not a single thread beside the stages is on an isolated CPU"


def test_a_cpu_that_the_cpuset_has_not_is_refused_and_the_affinity_stays(machine: Machine) -> None:
    machine.affinity, machine.cpuset = {0, 1}, {0, 1, 2}
    with pytest.raises(Refused, match=r"CPU 3 in forwarder.lcores cannot be used here; the CPUs are 0, 1, 2\."):
        environment.start(replace(SETTINGS, worker_cpus=(2, 3)))
    assert machine.affinity == {0, 1}
    assert machine.arguments is None


def test_where_nobody_may_change_the_affinity_the_cpus_are_those_that_there_are(machine: Machine) -> None:
    machine.affinity, machine.cpuset = {0, 1}, set()
    assert environment.usable_cpus((0, 2)) == {0, 1}


def test_this_kernel_gives_a_cpu_that_it_was_asked_for() -> None:
    cpus = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(cpus)})
        assert environment.usable_cpus([*cpus, -1, 4095]) == cpus
        assert os.sched_getaffinity(0) == {min(cpus)}
    finally:
        os.sched_setaffinity(0, cpus)


def test_the_affinity_that_eal_took_is_given_back(machine: Machine) -> None:
    environment.start(replace(SETTINGS, worker_cpus=(1,)))
    assert machine.affinity == {2, 3}


def test_the_affinity_is_given_back_when_dpdk_does_not_start(machine: Machine) -> None:
    machine.error = _dataplane.DataplaneError("initialise DPDK", 12)
    with pytest.raises(Refused, match="DPDK could not start"):
        environment.start(SETTINGS)
    assert machine.affinity == {0, 1, 2, 3}


def not_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)


def no_hugepages(_: pytest.MonkeyPatch) -> None:
    environment.MEMINFO.write_text(meminfo(3))


def nothing(_: pytest.MonkeyPatch) -> None:
    pass


@pytest.mark.parametrize(
    ("changes", "spoil", "words"),
    [
        ({"worker_cpus": (1, 9)}, nothing, "CPU 9 in forwarder.lcores cannot be used here; the CPUs are 0, 1, 2, 3."),
        ({"steering_cpu": -1}, nothing, "CPU -1 in forwarder.lcores"),
        ({"ports": ON_A_NIC}, not_root, "needs root"),
        ({"hugepages": True}, not_root, "hugepages need root"),
        ({"hugepages": True}, no_hugepages, "MB of hugepages are needed and 6 MB are free"),
    ],
)
def test_what_is_missing_is_said_before_dpdk_is_asked(
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,
    changes: dict[str, Any],
    spoil: Callable[[pytest.MonkeyPatch], None],
    words: str,
) -> None:
    spoil(monkeypatch)
    with pytest.raises(Refused) as refused:
        environment.start(replace(SETTINGS, **changes))
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)
    assert machine.arguments is None


def test_with_rss_the_workers_must_have_their_cpus_and_the_others_float_until_a_fallback(machine: Machine) -> None:
    rss = replace(SETTINGS, steering="rss", steering_cpu=9, muxing_cpu=3)
    environment.start(rss)
    assert machine.option("--lcores") == "0@(0,1,2,3),1@(0,1,2,3),2@1,3@2,4@3"
    assert machine.affinity == {0, 3}, "nothing spins where only a fallback would"
    with pytest.raises(Refused, match="CPU 9 in "):
        environment.check_cpus(rss.cpus, {0, 1, 2, 3})


def test_with_rss_a_worker_without_its_cpu_is_refused(machine: Machine) -> None:
    with pytest.raises(Refused, match="CPU 5 in"):
        environment.start(replace(SETTINGS, steering="rss", worker_cpus=(1, 5)))


def test_tables_in_hugepages_are_asked_for_beside_dpdks_own(machine: Machine) -> None:
    """With all of them in one sentence, so that they are reserved once."""
    wanted = needed_megabytes(16384, hugepages=True)
    environment.MEMINFO.write_text(meminfo(wanted // 2 + 1))
    environment.start(replace(SETTINGS, hugepages=True))
    assert int(machine.option("-m")) == wanted
    with pytest.raises(Refused, match=f"^{wanted + 28} MB of hugepages are needed"):
        environment.start(replace(SETTINGS, hugepages=True), 28 << 20)


def test_without_hugepages_and_kernel_interfaces_root_is_not_needed(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    not_root(monkeypatch)
    no_hugepages(monkeypatch)
    environment.start(SETTINGS)
    assert machine.arguments is not None
