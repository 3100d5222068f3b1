"""Tables from one process to the next: what is taken over, what begins empty and why, and kills in between."""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path
from typing import Any, cast

import pytest
from test_environment import SETTINGS

from forwarder import kept_tables, table_header, table_memory
from forwarder._dataplane import STEERING_SEED, TABLE_LAYOUT, Dataplane, table_bytes
from forwarder.kept_tables import KeptTables
from forwarder.settings import Refused, Settings
from forwarder.table_ids import TableIds
from forwarder.table_memory import PAGE

WWW = (ip_address("192.0.2.1"), 6, 80)
WEB1, WEB2 = ("web1", ip_address("10.0.3.2")), ("web2", ip_address("10.0.4.2"))
IDS = TableIds({WWW: (0, 1)}, {WEB1: (0, 1), WEB2: (3, 2)}, {WWW: {WEB1, WEB2}})
ONE_WORKER = replace(SETTINGS, worker_cpus=(1,), connection_entries=1000)
CONNECTIONS = 700


class Plane:
    """A data plane, as far as it takes tables over."""

    def __init__(self, whole: bool) -> None:
        self.whole = whole
        self.asked: tuple[dict[int, int], list[int]] | None = None

    def take_over(self, backends: dict[int, int], vips: Any, now: int) -> bool:
        self.asked = (backends, list(vips))
        return self.whole

    def worker(self, _: int) -> dict[str, int]:
        return {"live": CONNECTIONS if self.whole and self.asked and self.asked[0] else 0}


class Node:
    """A run directory, a clock and a place for tables; processes start on it and end in one way or another."""

    def __init__(self, root: Path) -> None:
        self.run_dir = root / "lb1"
        self.run_dir.mkdir()
        self.shared_memory = root / "shm"
        self.shared_memory.mkdir()
        self.now = 5000.0
        self.header = self.run_dir / "tables.json"

    @property
    def directory(self) -> Path:
        return table_memory.place(self.run_dir, False).directory

    def start(
        self, settings: Settings = ONE_WORKER, whole: bool = True, spread: int = STEERING_SEED
    ) -> tuple[KeptTables, Plane]:
        """A process that serves from here on."""
        kept, plane = KeptTables(self.run_dir, settings), Plane(whole)
        self.memory = kept.open(spread)
        kept.take_over(cast(Dataplane, plane))
        return kept, plane

    def one_that_was_killed(self, settings: Settings = ONE_WORKER) -> None:
        kept, _ = self.start(settings)
        kept.note(IDS)
        self.memory[0][:5] = b"flows"


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    node = Node(tmp_path)
    (tmp_path / "mounts").write_text(f"tmpfs {node.shared_memory} tmpfs rw 0 0\n")
    monkeypatch.setattr(table_memory, "MOUNTS", tmp_path / "mounts")
    monkeypatch.setattr(table_memory, "SHARED_MEMORY", node.shared_memory)
    monkeypatch.setattr(kept_tables, "clock", lambda: node.now)
    return node


# -- taken over


def test_the_first_process_begins_empty_and_says_so(node: Node) -> None:
    kept, plane = node.start()
    assert kept.describe() == {"kept": 0, "started_empty": "no forwarder of this node ran before"}
    assert plane.asked == ({}, [])
    assert kept.ids == TableIds()
    assert len(node.memory) == 1
    assert len(node.memory[0]) >= table_bytes(1000)


@pytest.mark.parametrize("ended", [True, False], ids=["ended in order", "killed"])
def test_the_next_one_takes_over_what_is_there(node: Node, ended: bool) -> None:
    first, _ = node.start()
    first.note(IDS)
    node.memory[0][:5] = b"flows"
    if ended:
        first.end()
    second, plane = node.start()
    assert second.describe() == {"kept": CONNECTIONS, "started_empty": None}
    assert second.ids == IDS
    assert plane.asked == ({0: 1, 3: 2}, [0])
    assert node.memory[0][:5] == b"flows"


def test_timeouts_and_all_that_means_nothing_to_an_entry_may_change(node: Node) -> None:
    node.one_that_was_killed()
    other = replace(
        ONE_WORKER,
        connection_seconds=(1, 2, 3, 4),
        packet_pool=4096,
        ring_size=64,
        worker_cpus=(3,),
        steering_cpu=2,
        idle="spin",
        sources={4: ip_address("10.9.9.9")},
        fingerprint="other",
    )
    assert node.start(other)[0].describe()["started_empty"] is None


def test_what_was_noted_last_is_what_counts(node: Node) -> None:
    first, _ = node.start()
    first.note(IDS)
    less = TableIds(IDS.vips, {WEB2: (3, 2)}, {WWW: {WEB2}})
    first.note(less)
    assert node.start()[0].ids == less


def test_a_process_that_is_killed_before_its_first_state_passes_everything_on(node: Node) -> None:
    node.one_that_was_killed()
    node.start()
    assert node.start()[0].ids == IDS
    assert node.memory[0][:5] == b"flows"


# -- begun empty


Spoil = Callable[[Node], Settings | None]


def more_workers(_: Node) -> Settings:
    return replace(ONE_WORKER, worker_cpus=(1, 2))


def more_entries(_: Node) -> Settings:
    return replace(ONE_WORKER, connection_entries=2000)


def another_key(_: Node) -> Settings:
    return replace(ONE_WORKER, hash_key=bytes(16))


def in_header(name: str, value: Any) -> Spoil:
    def spoil(node: Node) -> None:
        document = json.loads(node.header.read_text())
        assert name in document["identity"]
        document["identity"][name] = value
        node.header.write_text(json.dumps(document))

    return spoil


def another_version(node: Node) -> None:
    node.header.write_text(json.dumps(json.loads(node.header.read_text()) | {"version": 0}))


def cut_header(node: Node) -> None:
    os.truncate(node.header, 100)


def empty_header(node: Node) -> None:
    os.truncate(node.header, 0)


def binary_header(node: Node) -> None:
    node.header.write_bytes(bytes(range(256)))


def no_header(node: Node) -> None:
    node.header.unlink()


def cut_table(node: Node) -> None:
    os.truncate(node.directory / "table-0", PAGE)


def longer_table(node: Node) -> None:
    os.truncate(node.directory / "table-0", 1 << 20)


def no_table(node: Node) -> None:
    (node.directory / "table-0").unlink()


def no_directory(node: Node) -> None:
    table_memory.remove(node.run_dir)


def moved(node: Node) -> None:
    elsewhere = node.shared_memory.with_name("elsewhere")
    elsewhere.mkdir()
    table_memory.SHARED_MEMORY = elsewhere
    table_memory.MOUNTS.write_text(f"tmpfs {elsewhere} tmpfs rw 0 0\ntmpfs {node.shared_memory} tmpfs rw 0 0\n")


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (more_workers, "the number of workers changed from 1 to 2"),
        (more_entries, "the entries per worker changed from 1000 to 2000"),
        (another_key, "the hash key changed"),
        (
            in_header("layout", TABLE_LAYOUT - 1),
            f"the layout of connection tables changed from {TABLE_LAYOUT - 1} to",
        ),
        (in_header("boot", "before"), "the machine was booted since"),
        (in_header("seed", 1), "flows are spread over the workers in another way"),
        (another_version, "tables.json was written by another version of the forwarder"),
        (cut_header, "tables.json cannot be read"),
        (empty_header, "tables.json cannot be read"),
        (binary_header, "tables.json cannot be read"),
        (no_header, "no forwarder of this node ran before"),
        (cut_table, "the table of worker 0 has 4096 bytes instead of"),
        (longer_table, "the table of worker 0 has 1048576 bytes instead of"),
        (no_table, "the table of worker 0 is missing in"),
        (no_directory, "the table of worker 0 is missing in"),
        (moved, "their memory moved from"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_does_not_match_begins_empty_and_says_why(
    node: Node, monkeypatch: pytest.MonkeyPatch, spoil: Spoil, words: str
) -> None:
    monkeypatch.setattr(table_memory, "SHARED_MEMORY", node.shared_memory)
    node.one_that_was_killed()
    settings = spoil(node) or ONE_WORKER
    kept, plane = node.start(settings)
    assert words in str(kept.describe()["started_empty"])
    assert kept.describe()["kept"] == 0
    assert plane.asked == ({}, [])
    assert kept.ids == TableIds()
    assert [any(memory[:]) for memory in node.memory] == [False] * len(settings.worker_cpus)
    assert len(list(node.directory.iterdir())) == len(settings.worker_cpus)
    kept.note(IDS)
    later = node.start(settings)[0].describe()
    assert later == {"kept": CONNECTIONS * len(settings.worker_cpus), "started_empty": None}, "it is kept from now on"


def test_flows_that_are_spread_in_another_way_begin_empty_and_then_are_kept(node: Node) -> None:
    """Known only when ports are open: each worker's table would hold flows that other workers have now."""
    settings = replace(ONE_WORKER, worker_cpus=(1, 2))
    node.one_that_was_killed(settings)
    kept, plane = node.start(settings, spread=7)
    assert kept.describe() == {"kept": 0, "started_empty": "flows are spread over the workers in another way"}
    assert plane.asked == ({}, [])
    assert not any(any(memory[:]) for memory in node.memory)
    kept.note(IDS)
    again, _ = node.start(settings, spread=7)
    assert again.describe() == {"kept": 2 * CONNECTIONS, "started_empty": None}
    assert node.start(settings)[0].describe()["started_empty"] is not None, "and back"


def test_tables_that_were_elsewhere_are_removed(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_memory, "SHARED_MEMORY", node.shared_memory)
    node.one_that_was_killed()
    moved(node)
    node.start()
    table_memory.remove(node.run_dir)
    assert not list(node.directory.parent.iterdir())


def test_a_damaged_table_is_said(node: Node) -> None:
    node.one_that_was_killed()
    kept, plane = node.start(whole=False)
    assert plane.asked == ({0: 1, 3: 2}, [0])
    assert kept.describe() == {"kept": 0, "started_empty": "a table is damaged, or was never begun"}


# -- crashes


def test_three_crashes_in_a_minute_begin_empty(node: Node) -> None:
    node.one_that_was_killed()
    for _ in range(2):
        node.now += 20
        assert node.start()[0].describe()["started_empty"] is None
    node.now += 19
    kept, _ = node.start()
    assert kept.describe()["started_empty"] == "the forwarder crashed 3 times within a minute"
    assert not any(node.memory[0][:])
    kept.note(IDS)
    node.now += 42  # the first two are longer ago than a minute now
    assert node.start()[0].describe()["started_empty"] is None


def test_crashes_that_are_further_apart_do_not(node: Node) -> None:
    node.one_that_was_killed()
    for _ in range(10):
        node.now += 31
        assert node.start()[0].describe()["started_empty"] is None


def test_an_end_in_order_is_no_crash(node: Node) -> None:
    kept, _ = node.start()
    kept.note(IDS)
    for _ in range(10):
        kept.end()
        kept, _ = node.start()
        assert kept.describe()["started_empty"] is None


def test_a_start_that_is_refused_is_no_crash_and_makes_none_twice(node: Node) -> None:
    node.one_that_was_killed()
    for _ in range(5):
        node.now += 1
        kept = KeptTables(node.run_dir, ONE_WORKER)
        kept.open()
        kept.give_up()
    kept, _ = node.start()
    assert kept.describe() == {"kept": CONNECTIONS, "started_empty": None}
    header = table_header.read(node.header)
    assert header is not None
    assert header.crashes == (node.now - 4,)


def test_crashes_count_though_the_tables_began_empty(node: Node) -> None:
    for _ in range(3):
        node.now += 1
        node.start()
    node.now += 1
    assert "crashed 3 times" in str(node.start()[0].describe()["started_empty"])


# -- starts that fail, and kills at bad moments


def test_a_first_start_that_is_refused_leaves_nothing(node: Node) -> None:
    kept = KeptTables(node.run_dir, ONE_WORKER)
    kept.open()
    kept.give_up()
    assert list(node.run_dir.iterdir()) == list(node.shared_memory.iterdir()) == []


def test_no_room_for_new_tables_is_refused(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    (node.run_dir / "meminfo").write_text("MemAvailable: 100 kB\n")
    monkeypatch.setattr(table_memory, "MEMINFO", node.run_dir / "meminfo")
    kept = KeptTables(node.run_dir, ONE_WORKER)
    with pytest.raises(Refused, match="the connection tables need 1 MB of memory and 0 MB are available"):
        kept.open()


def test_killed_between_header_and_tables(node: Node) -> None:
    """Another key: the old tables are gone, the header is the new one, and the new tables are not there yet."""
    node.one_that_was_killed()
    other = replace(ONE_WORKER, hash_key=bytes(16))
    KeptTables(node.run_dir, other)
    assert not node.directory.exists()
    assert "the table of worker 0 is missing" in str(node.start(other)[0].describe()["started_empty"])


def test_killed_before_the_tables_were_begun(node: Node) -> None:
    """They are zeros, which are no tables: the data plane says so."""
    KeptTables(node.run_dir, ONE_WORKER).open()
    kept, _ = node.start(whole=False)
    assert kept.describe()["started_empty"] == "a table is damaged, or was never begun"


def test_an_old_header_never_meets_new_tables(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed while the old tables are being removed, before the new header is written."""
    node.one_that_was_killed()
    old = node.header.read_text()
    monkeypatch.setattr(KeptTables, "_save", lambda _: None)
    KeptTables(node.run_dir, more_workers(node))
    assert node.header.read_text() == old
    assert not node.directory.exists()


def test_what_cannot_be_noted_is_not_kept_and_forwarding_goes_on(
    node: Node, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    node.one_that_was_killed()
    kept, _ = node.start()

    def fail(path: Path, text: str) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(table_header, "write", fail)
        kept.note(TableIds())
        kept.end()
    assert "connections will not be kept" in capsys.readouterr().out
    assert not node.header.exists()
    assert not node.directory.exists()
    assert node.start()[0].describe()["started_empty"] == "no forwarder of this node ran before"


def test_only_changes_are_written(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    kept, _ = node.start()
    kept.note(IDS)
    written: list[str] = []
    monkeypatch.setattr(table_header, "write", lambda path, text: written.append(text))
    kept.note(TableIds(dict(IDS.vips), dict(IDS.backends), dict(IDS.usable)))
    assert written == []
    kept.note(TableIds())
    kept.note(IDS)
    assert len(written) == 2


def test_new_hugepages_are_told_only_when_they_will_be_taken(node: Node) -> None:
    huge = node.shared_memory.with_name("huge")
    huge.mkdir()
    table_memory.MOUNTS.write_text(f"none {huge} hugetlbfs rw,pagesize=2M 0 0\n")
    settings = replace(ONE_WORKER, worker_cpus=(1, 2), hugepages=True)
    assert KeptTables(node.run_dir, settings).new_hugepage_bytes == 4 << 20
    node.start(settings)
    assert KeptTables(node.run_dir, settings).new_hugepage_bytes == 0
    table_memory.MOUNTS.write_text(f"tmpfs {node.shared_memory} tmpfs rw 0 0\n")
    assert KeptTables(node.run_dir, settings).new_hugepage_bytes == 0
