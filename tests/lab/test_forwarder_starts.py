"""The forwarder process starts and ends: what it leaves, and what the next one finds."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from needs import WIRE
from packets.world import flow
from wire import (
    NODE,
    PATIENCE,
    PEER_ADDRESS,
    ROOT,
    SERVICE,
    Forwarder,
    Wire,
    inside,
    packet_sockets,
    settings,
    wait_until,
)

pytestmark = WIRE

HUGEPAGES = Path("/proc/sys/vm/nr_hugepages")


def test_sigterm_leaves_nothing_but_what_the_next_one_needs(wire: Wire, serving: Forwarder) -> None:
    wire.send(flow(i) for i in range(200))
    stays = ["forwarder.json", "tables.json"]
    assert sorted(p.name for p in serving.run_dir.iterdir()) == [
        *("forwarder.json", "forwarder.pid", "forwarder.sock", "tables.json")
    ]
    assert len(packet_sockets()) >= 1
    status, said = serving.stop()
    assert status == 0, said
    assert sorted(p.name for p in serving.run_dir.iterdir()) == stays
    assert [p.name for p in serving.tables().iterdir()] == ["table-0"]
    assert packet_sockets() == []
    assert not [line for line in said.splitlines() if '"error"' in line or "Traceback" in line]


def test_sigint_ends_it_too(serving: Forwarder) -> None:
    assert serving.stop(signal.SIGINT)[0] == 0


def test_files_are_not_for_everybody(serving: Forwarder) -> None:
    for name, most in (("forwarder.sock", 0o660), ("forwarder.pid", 0o660), ("tables.json", 0o600)):
        assert (serving.run_dir / name).stat().st_mode & 0o777 & ~most == 0, name
    assert serving.tables().stat().st_mode & 0o777 == 0o700
    assert (serving.tables() / "table-0").stat().st_mode & 0o777 == 0o600
    assert settings()["hash_key"] not in (serving.run_dir / "tables.json").read_text()


def meminfo(name: str) -> int:
    fields = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    return int(fields[name].split()[0])


def used_hugepages() -> int:
    return meminfo("HugePages_Total") - meminfo("HugePages_Free")


def hugepages_beside(tables: Path) -> int:
    """Those in use but for a node's tables, which outlive the process where the machine has a hugetlbfs."""
    kept = 0 if tables.is_relative_to("/dev/shm") else allocated(tables) // (2 << 20)
    return used_hugepages() - kept


@pytest.fixture
def hugepages() -> Iterator[None]:
    """Enough hugepages for one forwarder, beside what is there."""
    if not HUGEPAGES.exists():
        pytest.skip("this kernel has no hugepages")
    before = int(HUGEPAGES.read_text())
    wanted = before + max(0, 48 - meminfo("HugePages_Free"))
    HUGEPAGES.write_text(str(wanted))
    try:
        if meminfo("HugePages_Free") < 48:
            pytest.skip("there is no memory for 48 hugepages")
        yield
    finally:
        if int(HUGEPAGES.read_text()) == wanted:
            HUGEPAGES.write_text(str(before))


def allocated(directory: Path) -> int:
    """Bytes of shared memory that a node's tables take."""
    return sum(path.stat().st_blocks * 512 for path in directory.iterdir()) if directory.is_dir() else 0


def test_20_starts_under_load_and_kills(wire: Wire, forwarder: Forwarder, hugepages: None) -> None:
    """Each start works, whatever the one before left behind, and no hugepage and no shared memory is lost."""
    wire.neighbor(PEER_ADDRESS, wire.peer_mac)
    tables = forwarder.tables(hugepages=True)
    taken = set()
    for number in range(20):
        used = hugepages_beside(tables)
        forwarder.start(hugepages=True)
        assert hugepages_beside(tables) > used
        taken.add(allocated(tables))
        connections = forwarder.ask("stats")["connections"]
        assert (connections["kept"], bool(connections["started_empty"])) == (
            (200, False) if number in (1, 2) else (0, True)
        ), "the first begins empty, and those that follow three crashes in a minute"
        assert forwarder.ask("state", state=SERVICE)["generation"] == 1
        wait_until(lambda: all(h["mac"] for h in forwarder.ask("stats")["next_hops"]), "next hops are known")
        assert wire.send(flow(i) for i in range(200)) == 200
        if number % 4 == 0:
            assert len(list(wire.tunneled())) == 200, forwarder.ask("stats")
        assert forwarder.stop(signal.SIGKILL)[0] == -signal.SIGKILL
        wait_until(lambda was=used: hugepages_beside(tables) == was, "hugepages are free again")
        for _ in wire.tunneled():
            pass
        taken.add(allocated(tables))
    assert len(taken) == 1
    assert len(list(tables.parent.glob(f"{tables.name[:-8]}*"))) == 1
    used = hugepages_beside(tables)
    forwarder.start(hugepages=True)
    assert forwarder.stop()[0] == 0
    wait_until(lambda: hugepages_beside(tables) == used, "hugepages are free again")


@pytest.fixture
def hugetlbfs(hugepages: None, tmp_path: Path) -> Iterator[Path]:
    """There is a mount: this one, where the machine has none of its own."""
    mount = ["mount", "-t", "hugetlbfs", "-o", "pagesize=2M", "none", str(tmp_path)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("hugetlbfs cannot be mounted")
    yield tmp_path
    subprocess.run(["umount", str(tmp_path)], check=True)


def test_tables_in_hugepages_are_kept_too(wire: Wire, forwarder: Forwarder, hugetlbfs: Path) -> None:
    wire.neighbor(PEER_ADDRESS, wire.peer_mac)
    tables = forwarder.tables(hugepages=True)
    assert not tables.is_relative_to("/dev/shm")
    free, used = meminfo("HugePages_Free"), used_hugepages()
    for kept in (0, 200, 200):
        forwarder.start(hugepages=True)
        assert [path.stat().st_size for path in tables.iterdir()] == [2 << 20]
        assert forwarder.ask("stats")["connections"]["kept"] == kept
        forwarder.ask("state", state=SERVICE)
        wait_until(lambda: all(h["mac"] for h in forwarder.ask("stats")["next_hops"]), "next hops are known")
        wire.send(flow(i) for i in range(200))
        assert len(list(wire.tunneled())) == 200
        forwarder.stop(signal.SIGKILL)
        wait_until(lambda: used_hugepages() == used + 1, "all but the table's hugepage are free again")
    status, said = forwarder.refused(
        settings(hugepages=True, connection_table=settings()["connection_table"] | {"entries": free << 18})
    )
    assert (status, len(said.splitlines())) == (2, 1), said
    assert "of hugepages are needed" in said
    assert used_hugepages() == used, "tables that do not fit any more are gone"


SMALL_SHARED_MEMORY = f"mount -t tmpfs -o size=8M tmpfs /dev/shm && exec {sys.executable} -m forwarder $0"


def test_too_little_shared_memory_is_said_in_one_sentence(wire: Wire, forwarder: Forwarder) -> None:
    """In a mount namespace with a small one; nothing is left in it either, or the second start would say so."""
    table = settings()["connection_table"] | {"entries": 1 << 20}
    (forwarder.run_dir / "forwarder.json").write_text(json.dumps(settings(connection_table=table)))
    words = ["unshare", "-m", "sh", "-c", SMALL_SHARED_MEMORY, str(forwarder.run_dir)]
    done = subprocess.run(
        inside(NODE, *words), cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 2, done.stderr
    assert done.stderr.splitlines()[-1] == (
        "the connection tables need 14 MB of shared memory, which /dev/shm has no room for: make it with "
        "`mount -o remount,size=14M /dev/shm`, or write fewer connection_table.entries in the forwarder section."
    )
    assert sorted(path.name for path in forwarder.run_dir.iterdir()) == ["forwarder.json"]
