"""The kernel's packet generator, through /proc/net/pktgen; UDP, so the vip must be one of UDP.

NOT RUN YET: the kernel of the machine that this was written on has no pktgen. Commands are those of
Documentation/networking/pktgen.rst.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

PROC = Path("/proc/net/pktgen")
SENT = re.compile(r"pkts-sofar: (\d+)")
FLOWS = 65535  # the most it takes


class KernelPktgen:
    """One of its threads on one kernel interface."""

    name = "kernel pktgen"

    @staticmethod
    def options(parser: argparse.ArgumentParser) -> None:
        """What it must be told."""
        parser.add_argument("--interface", help="kernel-pktgen: the interface to send on")
        parser.add_argument("--vip", help="pktgen: IPv4 address of a vip")
        parser.add_argument("--vip-port", type=int, default=80, help="pktgen: the vip's port")
        parser.add_argument("--mac", help="pktgen: MAC of the node's port, or of the router before it")

    def __init__(self, asked: argparse.Namespace) -> None:
        if None in (asked.interface, asked.vip, asked.mac):
            sys.exit("kernel-pktgen needs --interface, --vip and --mac.")
        if not PROC.exists():
            sys.exit("The kernel's packet generator is not there: modprobe pktgen (CONFIG_NET_PKTGEN).")
        self._device = f"{asked.interface}@0"
        self._asked = asked
        self._running: subprocess.Popen[bytes] | None = None

    def start(self, rate: float, size: int) -> None:
        """Configure and start; its `start` returns only at the end, so it has a process of its own."""
        self._write("pgctrl", "reset")
        self._write("kpktgend_0", f"add_device {self._device}")
        for command in (
            "count 0",
            "clone_skb 0",
            f"pkt_size {size - 4}",
            f"dst_mac {self._asked.mac}",
            f"dst {self._asked.vip}",
            f"udp_dst_min {self._asked.vip_port}",
            f"udp_dst_max {self._asked.vip_port}",
            "src_min 198.18.0.0",
            "src_max 198.19.255.255",
            "flag IPSRC_RND",
            "flag UDPSRC_RND",
            "udp_src_min 1024",
            "udp_src_max 65535",
            f"flows {FLOWS}",
            "flowlen 1",
            "flag NO_TIMESTAMP",
            *([f"ratep {rate:.0f}"] if rate else ["delay 0"]),
        ):
            self._write(self._device, command)
        self._running = subprocess.Popen(["sh", "-c", f"echo start > {PROC}/pgctrl"])

    def stop(self) -> int:
        """Stop and read what was sent."""
        self._write("pgctrl", "stop")
        if self._running is not None:
            self._running.wait()
        found = SENT.search((PROC / self._device).read_text())
        return int(found[1]) if found else 0

    def _write(self, file: str, command: str) -> None:
        (PROC / file).write_text(command + "\n")
