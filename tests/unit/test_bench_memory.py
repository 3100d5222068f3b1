"""Hugepages for a benchmark: borrowed from the kernel, and given back."""

from collections.abc import Callable
from pathlib import Path

import pytest

from perf import memory

NEEDED = 1024  # MB: 512 pages


class Kernel:
    """The two files, and what is due when the process ends."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch, *, reserved: int, root: bool) -> None:
        self.at_exit: list[tuple[Callable[[str], int], str]] = []
        self.reserved = directory / "nr_hugepages"
        self.reserved.write_text(f"{reserved}\n")
        monkeypatch.setattr(memory, "RESERVED", self.reserved)
        monkeypatch.setattr(memory, "MEMINFO", self)
        monkeypatch.setattr(memory.os, "geteuid", lambda: 0 if root else 1000)
        monkeypatch.setattr(memory.atexit, "register", lambda *due: self.at_exit.append(due))
        self.most = 100_000

    def read_text(self) -> str:
        there = min(int(self.reserved.read_text()), self.most)
        rest = "HugePages_Rsvd:        0\nHugepagesize:       2048 kB\n"
        return f"HugePages_Total:   {there}\nHugePages_Free:   {there}\n{rest}"


def test_what_is_missing_is_borrowed_and_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel(tmp_path, monkeypatch, reserved=3, root=True)
    memory.borrow(NEEDED)
    assert kernel.reserved.read_text() == "512"
    for function, text in kernel.at_exit:
        function(text)
    assert kernel.reserved.read_text() == "3\n"


def test_nothing_is_borrowed_where_there_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel(tmp_path, monkeypatch, reserved=512, root=True)
    memory.borrow(NEEDED)
    assert (kernel.reserved.read_text(), kernel.at_exit) == ("512\n", [])


@pytest.mark.parametrize("root", [True, False], ids=["the kernel has not so many", "not root"])
def test_too_few_are_told_and_nothing_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, root: bool) -> None:
    kernel = Kernel(tmp_path, monkeypatch, reserved=3, root=root)
    kernel.most = 100
    with pytest.raises(SystemExit, match=r"1024 MB of hugepages are needed and \d+ MB are free: .*--no-hugepages"):
        memory.borrow(NEEDED)
    for function, text in kernel.at_exit:
        function(text)
    assert kernel.reserved.read_text() == "3\n"
