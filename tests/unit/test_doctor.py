"""`maglev doctor` on five made-up machines, on this one, and as a command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from machine_tree import ADDRESS, CMDLINE, CPUS, NIC, NODE, Tree, meminfo, pages

from controller.cli import maglev
from forwarder.hugepages import Hugepages


def doctor(*arguments: str | Path) -> Result:
    return CliRunner().invoke(maglev, ["doctor", *map(str, arguments)])


def command(tree: Tree) -> Result:
    """The command with the machine's own configuration, after which nothing of a traceback is to be seen."""
    root = tree.write()
    (root / "lb1.yaml").write_text(tree.config)
    nics = [word for nic in tree.nics for word in ("--nic", nic)]
    return doctor(root / "lb1.yaml", *nics, "--root", root)


def test_a_good_machine_has_nothing_wrong(tree: Tree) -> None:
    assert tree.wrong() == []


def test_a_machine_without_hugepages(tree: Tree) -> None:
    tree.files["proc/cmdline"] = CMDLINE.replace(" hugepages=1024", "")
    tree.files["proc/meminfo"] = meminfo(0, 0)
    for node in (0, 1):
        tree.files |= pages(f"{NODE}/node{node}/hugepages/hugepages-2048kB", 0, 0)
    tree.files |= pages("sys/kernel/mm/hugepages/hugepages-2048kB", 0, 0)
    answer = tree.answer()
    (found,) = (finding for finding in answer["findings"] if finding["level"] != "ok")
    assert (found["subject"], found["level"]) == ("hugepages", "error")
    assert "MB of hugepages are needed, and 0 MB are free" in found["says"]
    assert found["why"]
    needed = int(found["says"].split()[0])
    assert f"sysctl -w vm.nr_hugepages={-(-needed // 2)} " in found["mend"]


def test_a_machine_whose_nic_is_not_supported(tree: Tree) -> None:
    tree.files[f"{ADDRESS}/device"] = "0x1572"
    assert tree.wrong() == [
        ("NICs", "error", f"{NIC} [8086:1572] is not supported: no driver of DPDK here has its id"),
    ]


def test_a_machine_whose_nic_is_on_the_wrong_numa_node(tree: Tree) -> None:
    tree.files[f"{ADDRESS}/numa_node"] = "1"
    answer = tree.answer()
    (found,) = (finding for finding in answer["findings"] if finding["level"] != "ok")
    assert (found["subject"], found["level"]) == ("topology", "warning")
    assert found["says"] == f"{NIC} is on NUMA node 1, and CPU 2-5 is not"
    assert found["mend"] == "write CPUs of node 1 in forwarder.lcores: 8-15"


def test_a_machine_whose_iommu_is_off(tree: Tree) -> None:
    tree.files["proc/cmdline"] = CMDLINE.replace("intel_iommu=on iommu=pt ", "")
    tree.drop("sys/kernel/iommu_groups")
    del tree.links[f"{ADDRESS}/iommu_group"]
    answer = tree.answer()
    (found,) = (finding for finding in answer["findings"] if finding["level"] != "ok")
    assert (found["subject"], found["level"], found["says"]) == ("IOMMU", "error", "the IOMMU is off")
    assert "intel_iommu=on iommu=pt" in found["mend"]


def test_errors_are_status_1_and_warnings_are_not(tree: Tree) -> None:
    tree.fact(clock_synchronised=False)
    tree.files[f"{CPUS}/cpu3/cpufreq/scaling_governor"] = "powersave"
    warned = command(tree)
    assert warned.exit_code == 0, warned.output
    assert warned.stdout.splitlines()[-1] == "0 errors, 2 warnings"


def test_people_are_told_why_and_what_mends_it(tree: Tree) -> None:
    tree.files["sys/class/net/eth1/flags"] = "0x1002"
    result = command(tree)
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    at = next(i for i, line in enumerate(lines) if "eth1 is down" in line)
    assert lines[at].split()[:2] == ["interfaces", "error"]
    assert lines[at + 1].strip() == "why: no packet comes or goes by it"
    assert lines[at + 2].strip() == "mend: ip link set eth1 up"
    assert lines[-1] == "1 error, 0 warnings"


def test_json_has_every_finding_and_the_counts(tree: Tree) -> None:
    root = tree.write()
    result = doctor("--root", root, "--json")
    answer = json.loads(result.stdout)
    assert set(answer) == {"findings", "errors", "warnings"}
    assert all(set(f) == {"subject", "level", "says", "why", "mend"} for f in answer["findings"])
    assert {f["level"] for f in answer["findings"]} == {"ok"}
    assert all(not f["why"] and not f["mend"] for f in answer["findings"])


@pytest.mark.parametrize(
    "words", [("--nic", "eth0"), ("--nic", "0000:3b:00"), ("--nic", "../../x"), ("--root", "nosuch")]
)
def test_wrong_words_are_status_2(words: tuple[str, ...]) -> None:
    result = doctor(*words)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert words[1] in result.stderr


def test_a_configuration_that_is_wrong_is_told_as_check_tells_it(tree: Tree) -> None:
    tree.config = tree.config.replace("idle: spin", "idle: never")
    result = command(tree)
    assert result.exit_code == 2
    assert "forwarder.idle" in result.stderr


def test_a_short_pci_address_will_do(tree: Tree) -> None:
    result = doctor("--root", tree.write(), "--nic", "3B:00.0")
    assert f"{NIC} [8086:1592] is supported by net_ice" in result.stdout


def test_the_nics_of_the_configuration_are_looked_at_without_being_named(tree: Tree) -> None:
    """Those that are its ports, and those that are named beside them, each once."""
    tree.nics = ()
    tree.edit(("device: eth1", f"device: {NIC}"))
    tree.links[f"{ADDRESS}/driver"] = "../../drivers/ice"
    result = command(tree)
    assert result.exit_code == 1
    assert result.stdout.count(f"{NIC} is bound to ice, not to vfio-pci") == 1


def real(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "controller.cli", "doctor", *arguments]
    return subprocess.run(
        argv, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False, timeout=60, **options
    )


def test_this_machine_is_told_as_the_kernel_tells_it() -> None:
    before = Hugepages.read(Path("/proc/meminfo").read_text())
    began = time.monotonic()
    done = real("configs/maglev.yaml", "--json")
    assert time.monotonic() - began < 10, "it takes half a second; other tests may run beside"
    answer = json.loads(done.stdout)
    assert done.returncode == (1 if answer["errors"] else 0), done.stderr
    assert done.stderr == ""
    after = Hugepages.read(Path("/proc/meminfo").read_text())  # a forwarder may have started or ended meanwhile
    says = [f["says"] for f in answer["findings"] if f["subject"] == "hugepages"]
    free = {pages.free_megabytes for pages in (before, after)}
    assert any(f"and {megabytes} MB are free" in line for line in says for megabytes in free)
    cpus = Path("/sys/devices/system/cpu/online").read_text().strip()
    assert any(f["says"].startswith(f"online: {cpus};") for f in answer["findings"])


@pytest.mark.skipif(os.geteuid() != 0, reason="gives up root")
def test_without_root_it_says_what_a_node_would_lack() -> None:
    done = real("configs/maglev.yaml", "--json", user=65534, group=65534, extra_groups=[])
    answer = json.loads(done.stdout)
    warned = [f["says"] for f in answer["findings"] if f["subject"] == "limits" and f["level"] == "warning"]
    assert warned == [
        "this shell is not root's: hugepages need root; packets on interfaces need CAP_NET_ADMIN and CAP_NET_RAW"
    ]
