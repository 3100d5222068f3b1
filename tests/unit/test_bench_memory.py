"""Hugepages for a benchmark: borrowed from the kernel while memory is taken, and given back."""

from pathlib import Path

import pytest

from perf import memory

NEEDED = 1024  # MB: 512 pages


class Kernel:
    """The two files."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch, *, reserved: int, root: bool) -> None:
        self.reserved = directory / "nr_hugepages"
        self.reserved.write_text(f"{reserved}\n")
        self.most = 100_000
        monkeypatch.setattr(memory, "RESERVED", self.reserved)
        monkeypatch.setattr(memory, "MEMINFO", self)
        monkeypatch.setattr(memory.os, "geteuid", lambda: 0 if root else 1000)

    def read_text(self) -> str:
        there = min(int(self.reserved.read_text()), self.most)
        rest = "HugePages_Rsvd:        0\nHugepagesize:       2048 kB\n"
        return f"HugePages_Total:   {there}\nHugePages_Free:   {there}\n{rest}"


def test_what_is_missing_is_borrowed_and_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel(tmp_path, monkeypatch, reserved=3, root=True)
    with memory.borrowed(NEEDED):
        assert kernel.reserved.read_text() == "512"
    assert kernel.reserved.read_text() == "3\n"


def test_nothing_is_borrowed_where_there_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel(tmp_path, monkeypatch, reserved=600, root=True)
    with memory.borrowed(NEEDED):
        assert kernel.reserved.read_text() == "600\n"
    assert kernel.reserved.read_text() == "600\n"


@pytest.mark.parametrize("root", [True, False], ids=["the kernel has not so many", "not root"])
def test_too_few_are_told_and_nothing_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, root: bool) -> None:
    kernel = Kernel(tmp_path, monkeypatch, reserved=3, root=root)
    kernel.most = 100
    told = r"1024 MB of hugepages are needed and \d+ MB are free: .*--no-hugepages"
    with pytest.raises(SystemExit, match=told), memory.borrowed(NEEDED):
        raise AssertionError("it goes no further")
    assert kernel.reserved.read_text() == "3\n"
