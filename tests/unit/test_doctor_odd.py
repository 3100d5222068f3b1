"""`maglev doctor` on machines whose files are missing, odd, or lead elsewhere: it never raises."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from machine_tree import CONFIG, NIC, PMDS, Tree, good, good_links

from controller.config import loads
from controller.doctor import cpu_list
from controller.doctor.facts import Kernel, Written
from controller.doctor.machine import Machine
from controller.doctor.subjects import SUBJECTS, diagnose
from forwarder.channels import Channels

FILES = sorted(path for path in good() if not re.search(r"/cpu([6-9]|\d\d)/", path))
"""Those of other CPUs are not read."""
LINKS = sorted(good_links())
ODD = (
    b"",
    b"\n",
    b"-1",
    b"0x",
    b"9" * 5000,
    b"0-99999999999,3-1,-,7",
    b"\xff\xfe\x00",
    b"[]",
    b"{",
    b'{"offloads": 3, "reach": [], "modules": {"exabgp": 1}, "runs": 5, "clock_synchronised": "x"}',
    b"a b c d e f g h\n" * 3,
    b"HugePages_Total:\nHugePages_Free: x\n",
    b"Hugepagesize: 0 kB",
    b"none\\777 /x\\999 hugetlbfs pagesize=2M 0 0",
    b"     |-- 999.1.1.1\n        /99 host LOCAL\n     |-- 1.1.1.1\n        /1 host LOCAL",
    b"hugepagesz=%b hugepages=%b" % (b"9" * 5000, b"9" * 5000),
    b"Max open files   %b   1   files" % (b"9" * 5000),
    b"hugepagesz=G hugepages=1:x,2 default_hugepagesz= hugepages=",
)
PARSED = loads(CONFIG)


def examined(root: Path) -> None:
    """What is said keeps its form."""
    for config in (PARSED, None):
        answer = diagnose(Machine(root, (NIC,)), config)
        assert answer["errors"] + answer["warnings"] <= len(answer["findings"])
        assert {finding["subject"] for finding in answer["findings"]} <= set(SUBJECTS)
        assert all(finding["says"] and "\n" not in finding["says"] for finding in answer["findings"])


@pytest.mark.parametrize("path", [*FILES, *LINKS])
def test_any_file_may_be_missing(tree: Tree, path: str) -> None:
    tree.files.pop(path, None)
    tree.links.pop(path, None)
    examined(tree.write())


def test_any_file_may_be_a_directory_or_a_link_to_itself(tree: Tree) -> None:
    root = tree.write()
    for path in FILES:
        (root / path).unlink()
        (root / path).mkdir()
    examined(root)
    for path in FILES:
        (root / path).rmdir()
        (root / path).symlink_to(os.path.basename(path))
    examined(root)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=st.dictionaries(st.sampled_from(FILES), st.sampled_from(ODD) | st.binary(max_size=40), min_size=1))
def test_any_file_may_be_odd(changes: dict[str, bytes], odd_tree: Path) -> None:
    before = {path: (odd_tree / path).read_bytes() for path in changes}
    try:
        for path, octets in changes.items():
            (odd_tree / path).write_bytes(octets)
        examined(odd_tree)
    finally:
        for path, octets in before.items():
            (odd_tree / path).write_bytes(octets)


@pytest.fixture
def odd_tree(tree: Tree) -> Path:
    return tree.write()


@pytest.mark.parametrize("path", FILES)
def test_each_file_may_be_odd_by_itself(tree: Tree, path: str) -> None:
    root = tree.write()
    for octets in ODD:
        (root / path).write_bytes(octets)
        diagnose(Machine(root, (NIC,)), PARSED)


def test_a_kernel_whose_release_names_no_file(tree: Tree) -> None:
    tree.drop("sys/bus/pci/drivers")
    root = tree.write()
    for release in ("\0", "x" * 5000, "../../..", ""):
        (root / "proc/sys/kernel/osrelease").write_text(release)
        examined(root)


def test_an_empty_machine(tmp_path: Path) -> None:
    examined(tmp_path)


def test_a_link_that_leads_out_of_the_root_leads_nowhere(tree: Tree) -> None:
    root = tree.write()
    (root / "proc/cmdline").unlink()
    (root / "proc/cmdline").symlink_to("/proc/cmdline")
    (root / "sys/class/out").symlink_to("/sys/class")
    machine = Machine(root)
    assert machine.text("proc/cmdline") == ""
    assert machine.names("sys/class/out") == []
    assert not machine.is_there("sys/class/out/net")


def test_what_may_not_be_read_is_told(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tree.write()
    read = Path.read_text

    def refused(path: Path, *arguments: str, **options: str) -> str:
        if path.name == "cmdline":
            raise PermissionError
        return read(path, *arguments, **options)

    monkeypatch.setattr(Path, "read_text", refused)
    assert _wrong(root) == [("reading", "warning", "not allowed to read /proc/cmdline")]


def _wrong(root: Path) -> list[tuple[str, str, str]]:
    findings = diagnose(Machine(root), PARSED)["findings"]
    return [(f["subject"], f["level"], f["says"]) for f in findings if f["level"] != "ok"]


@given(cpus=st.frozensets(st.integers(0, 300)))
def test_lists_of_cpus_are_read_as_they_are_written(cpus: frozenset[int]) -> None:
    assert cpu_list.parse(cpu_list.written(cpus)) == cpus


def test_a_list_of_cpus_is_as_the_kernel_writes_it() -> None:
    assert cpu_list.written({0, 1, 2, 5, 7, 8}) == "0-2,5,7-8"
    assert cpu_list.parse("0-2, 5,x,7-8\n") == {0, 1, 2, 5, 7, 8}
    assert cpu_list.parse("(null)") == frozenset()


def test_the_kernel_and_the_file_answer_the_same_questions() -> None:
    kernel, nothing = Kernel(), Written("")
    assert kernel.offload("lo", "tso") in (True, False)
    assert kernel.offload("nosuch0", "gro") is False
    assert kernel.channels("lo") == Channels(1, "combined 1")
    assert nothing.channels("lo") is None
    assert kernel.clock_synchronised() in (True, False)
    assert kernel.has_module("exabgp") is True
    assert kernel.has_module("nosuchmodule") is False
    assert kernel.runs("nosuchnode") is False
    assert nothing.offload("lo", "tso") is nothing.clock_synchronised() is nothing.has_module("exabgp") is None
    assert nothing.reach("10.0.2.1", ask=True) is None
    assert nothing.runs("lb1") is False


def test_the_kernel_is_asked_how_far_a_router_is() -> None:
    kernel = Kernel()
    assert kernel.reach("127.0.0.1", ask=True) in ("refused", "connected")
    assert kernel.reach("127.0.0.1", ask=False) == "not asked"
    assert kernel.reach("::1", ask=False) in ("not asked", "no route")


def test_the_drivers_of_the_tree_are_not_those_of_this_machine(tree: Tree) -> None:
    assert Machine(tree.write()).driver_directory == PMDS
