import errno
import mmap
import os
from pathlib import Path

import pytest

from forwarder import table_memory
from forwarder.settings import Refused
from forwarder.table_memory import HUGE_PAGE, PAGE, Place, place, remove

BYTES = 3 * PAGE + 64


class Machine:
    """Mounts as a test wants them; the files are on whatever file system tests have."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.shared_memory, self.hugetlbfs, self.run_dir = root / "shm", root / "huge pages", root / "run" / "lb1"
        for directory in (self.shared_memory, self.hugetlbfs, self.run_dir):
            directory.mkdir(parents=True)
        self.mounts = root / "mounts"
        self.shm = f"tmpfs {self.shared_memory} tmpfs rw 0 0"
        self.huge = f"none {str(self.hugetlbfs).replace(' ', chr(92) + '040')} hugetlbfs rw,relatime,pagesize=2M 0 0"
        self.see("/dev/root / ext4 rw 0 0", self.shm)

    def see(self, *lines: str) -> None:
        self.mounts.write_text("".join(line + "\n" for line in lines))

    def place(self, hugepages: bool = False) -> Place:
        return place(self.run_dir, hugepages)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine(tmp_path)
    monkeypatch.setattr(table_memory, "MOUNTS", machine.mounts)
    monkeypatch.setattr(table_memory, "SHARED_MEMORY", machine.shared_memory)
    return machine


# -- where


def test_shared_memory_unless_there_are_hugepages_to_be_used(machine: Machine) -> None:
    assert machine.place().mount == machine.place(hugepages=True).mount == machine.shared_memory
    machine.see(machine.shm, machine.huge)
    assert machine.place().mount == machine.shared_memory
    found = machine.place(hugepages=True)
    assert (found.mount, found.hugepages) == (machine.hugetlbfs, True)


@pytest.mark.parametrize("options", ["rw,pagesize=1024M", "rw"])
def test_only_hugepages_of_2_mb_will_do(machine: Machine, options: str) -> None:
    machine.see(machine.shm, f"none {machine.hugetlbfs} hugetlbfs {options} 0 0")
    assert not machine.place(hugepages=True).hugepages


def test_a_mount_that_is_not_there_is_passed_over(machine: Machine) -> None:
    machine.see(machine.shm, f"none {machine.root}/gone hugetlbfs rw,pagesize=2M 0 0")
    assert not machine.place(hugepages=True).hugepages


def test_the_run_directory_where_shared_memory_is_none(machine: Machine) -> None:
    machine.see("/dev/root / ext4 rw 0 0", f"tmpfs {machine.run_dir.parent} tmpfs rw 0 0")
    assert machine.place().directory.parent == machine.run_dir
    assert machine.place().mount == machine.run_dir.parent
    machine.see(
        "/dev/root / ext4 rw 0 0", f"tmpfs {machine.root} tmpfs rw 0 0", f"x {machine.shared_memory} ext4 rw 0 0"
    )
    assert machine.place().directory.parent == machine.run_dir


def test_nowhere_is_one_sentence(machine: Machine) -> None:
    machine.see("/dev/root / ext4 rw 0 0")
    with pytest.raises(
        Refused, match=r"^there is no shared memory for the connection tables: `mount .*` makes some\.$"
    ):
        machine.place()


def test_no_two_nodes_have_one_place(machine: Machine) -> None:
    paths = [machine.run_dir, machine.root / "other" / "lb1", machine.run_dir.with_name("lb2")]
    directories = {place(path, False).directory for path in paths}
    assert len(directories) == 3
    assert machine.place().directory.name.startswith("maglev-lb1-")
    (machine.root / "link").symlink_to(machine.run_dir.parent)
    assert place(machine.root / "link" / "lb1", False).directory in directories


# -- files


def test_files_are_whole_pages_of_zeros_and_what_is_written_stays(machine: Machine) -> None:
    found = machine.place()
    tables = found.create(2, BYTES)
    assert [len(table) for table in tables] == [4 * PAGE] * 2
    assert not any(any(table[:]) for table in tables)
    tables[1][BYTES - 1] = 7
    tables[0][:4] = b"abcd"
    again = found.open(2, BYTES)
    assert (again[0][:4], again[1][BYTES - 1]) == (b"abcd", 7)
    assert found.directory.stat().st_mode & 0o777 == 0o700
    for path in found.directory.iterdir():
        assert path.stat().st_mode & 0o777 == 0o600
        assert path.stat().st_blocks * 512 >= 4 * PAGE, "no hole that could find no page later"


def test_hugepages_make_larger_files(machine: Machine) -> None:
    machine.see(machine.huge)
    assert machine.place(hugepages=True).file_bytes(BYTES) == HUGE_PAGE
    assert machine.place(hugepages=True).file_bytes(HUGE_PAGE) == HUGE_PAGE
    assert machine.place(hugepages=True).file_bytes(HUGE_PAGE + 1) == 2 * HUGE_PAGE


def test_files_that_differ_are_told(machine: Machine) -> None:
    found = machine.place()
    assert found.difference(1, BYTES) == f"the table of worker 0 is missing in {found.directory}"
    found.create(2, BYTES)
    assert found.difference(2, BYTES) is None
    assert found.difference(3, BYTES) == f"the table of worker 2 is missing in {found.directory}"
    assert found.difference(2, BYTES + PAGE) == "the table of worker 0 has 16384 bytes instead of 20480"
    os.truncate(found.directory / "table-1", 100)
    assert found.difference(2, BYTES) == "the table of worker 1 has 100 bytes instead of 16384"
    (found.directory / "table-1").unlink()
    (found.directory / "table-1").symlink_to(found.directory / "table-0")
    assert found.difference(2, BYTES) == f"the table of worker 1 is missing in {found.directory}"
    with pytest.raises(Refused, match="there is no memory for the connection tables"):
        found.open(2, BYTES)


def test_all_of_a_node_is_removed_wherever_it_is_and_nothing_of_another(machine: Machine) -> None:
    machine.see(machine.shm, machine.huge)
    machine.place().create(1, BYTES)
    machine.place(hugepages=True).create(1, BYTES)
    other = place(machine.run_dir.with_name("lb2"), False)
    other.create(1, BYTES)
    remove(machine.run_dir)
    remove(machine.run_dir)
    assert not machine.place().directory.exists()
    assert not machine.place(hugepages=True).directory.exists()
    assert other.difference(1, BYTES) is None


def test_what_is_not_ours_is_left_alone(machine: Machine) -> None:
    precious = machine.root / "precious"
    precious.mkdir()
    (precious / "table-0").touch()
    machine.place().directory.symlink_to(precious)
    remove(machine.run_dir)
    assert (precious / "table-0").exists()
    with pytest.raises(Refused, match="is in the way of the connection tables, and not ours: remove it"):
        machine.place().create(1, BYTES)
    assert machine.place().directory.is_symlink()


# -- too little


def refuse(number: int) -> object:
    def fallocate(descriptor: int, offset: int, length: int) -> None:
        raise OSError(number, os.strerror(number))

    return fallocate


@pytest.mark.parametrize(
    ("hugepages", "number", "words"),
    [
        (
            False,
            errno.ENOSPC,
            "the connection tables need 7 MB of shared memory, which {} has no room for: make it with",
        ),
        (
            True,
            errno.ENOSPC,
            "the connection tables need 8 MB of hugepages and {} has no room for them: raise vm.nr_hu",
        ),
        (False, errno.ENOMEM, "there is no memory for the connection tables in {}"),
        (False, errno.EACCES, "there is no memory for the connection tables in {}"),
    ],
)
def test_no_room_is_one_sentence_and_leaves_nothing(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, hugepages: bool, number: int, words: str
) -> None:
    machine.see(machine.shm, machine.huge)
    found = machine.place(hugepages)
    monkeypatch.setattr(os, "posix_fallocate", refuse(number))
    with pytest.raises(Refused) as refused:
        found.create(2, (7 << 20) // 2)
    assert str(refused.value).startswith(words.format(found.mount))
    assert str(refused.value).endswith(".")
    assert "\n" not in str(refused.value)
    assert not found.directory.exists()


def test_the_second_file_that_finds_no_room_takes_the_first_with_it(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = machine.place()
    real, calls = mmap.mmap, []

    def once(*arguments: object, **options: object) -> object:
        calls.append(arguments)
        if len(calls) == 2:
            raise OSError(errno.ENOSPC, "no space")
        return real(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(mmap, "mmap", once)
    with pytest.raises(Refused):
        found.create(2, BYTES)
    assert not found.directory.exists()


def test_more_than_the_machine_has_is_refused_untried(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    meminfo = machine.root / "meminfo"
    meminfo.write_text("MemTotal:       16000000 kB\nMemAvailable:      10240 kB\n")
    monkeypatch.setattr(table_memory, "MEMINFO", meminfo)
    monkeypatch.setattr(os, "posix_fallocate", refuse(errno.EIO))
    with pytest.raises(Refused) as refused:
        machine.place().create(2, 6 << 20)
    assert str(refused.value) == (
        "the connection tables need 12 MB of memory and 10 MB are available: write fewer "
        "connection_table.entries in the forwarder section."
    )
    assert not machine.place().directory.exists()
