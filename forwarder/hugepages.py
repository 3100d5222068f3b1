"""Hugepages of the default size: how many there are, and how many to ask the kernel for. No DPDK in it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Hugepages:
    """Hugepages of the default size, from /proc/meminfo; `free` are those that nobody has or was promised."""

    total: int
    free: int
    kilobytes: int

    @classmethod
    def read(cls, meminfo: str) -> "Hugepages":
        """From the text of /proc/meminfo; all zero where the kernel has none."""
        fields = dict(line.split(":", 1) for line in meminfo.splitlines() if ":" in line)
        total, free, reserved, kilobytes = (
            int(fields.get(name, "0").split()[0])
            for name in ("HugePages_Total", "HugePages_Free", "HugePages_Rsvd", "Hugepagesize")
        )
        return cls(total, free - reserved, kilobytes)

    @property
    def free_megabytes(self) -> int:
        """Memory in free pages."""
        return self.free * self.kilobytes // 1024

    def shortage(self, megabytes: int) -> str | None:
        """What is missing for so much memory and how to get it, an unfinished sentence; None when it is there."""
        if self.free_megabytes >= megabytes:
            return None
        return (
            f"{megabytes} MB of hugepages are needed and {self.free_megabytes} MB are free: reserve them with "
            f"`sysctl -w vm.nr_hugepages={self.wanted(megabytes)}`"
        )

    def wanted(self, megabytes: int) -> int:
        """The total to ask the kernel for, so that so much is free beside what others have."""
        return self.total - self.free + -(-megabytes * 1024 // (self.kilobytes or 2048))
