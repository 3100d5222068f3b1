"""A machine emulated by QEMU, with an IOMMU and a NIC on PCI; commands are run in it by its guest agent."""

from __future__ import annotations

import base64
import json
import os
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from lab.namespaces import SOURCE, Namespace

IMAGE: Final = SOURCE / "build/pci"  # by tests/pci/image.sh
PRODUCT: Final = IMAGE / "product"  # what `make install` has put into /opt/maglev
SLOT: Final = 3
ADDRESS: Final = f"0000:00:{SLOT:02x}.0"  # of the NIC
BOOT: Final = 180.0  # seconds; it takes 12 on two CPUs that have nothing else to do
PATIENCE: Final = 120.0  # seconds for one command
PATH: Final = "/opt/maglev/bin:/usr/sbin:/usr/bin"
FASTER: Final = "clocksource=tsc tsc=reliable mitigations=off"  # each look at another clock would be one into QEMU
MACHINE: Final = (
    "-name", "maglev-pci", "-nodefaults", "-display", "none", "-no-reboot",
    "-machine", "q35", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", "2048",
    "-kernel", f"{IMAGE}/vmlinuz", "-initrd", f"{IMAGE}/initrd.img",
    "-append", f"root=/dev/vda rw console=ttyS0 quiet intel_iommu=on iommu=pt {FASTER}",
    "-device", "intel-iommu,intremap=on",
    "-drive", f"file={IMAGE}/disk.ext4,format=raw,if=none,id=disk,snapshot=on",  # what is written is forgotten
    "-device", "virtio-blk-pci,drive=disk,addr=10",
    "-fsdev", f"local,id=maglev,path={PRODUCT},security_model=none,readonly=on",
    "-device", "virtio-9p-pci,fsdev=maglev,mount_tag=maglev,addr=11",
    "-device", "virtio-serial-pci,addr=12", "-device", "virtserialport,chardev=agent,name=org.qemu.guest_agent.0",
)  # fmt: skip


class Guest:
    """One such machine, running from its making until `close`.

    `nic` is QEMU's description of the NIC, and `tap` the interface that QEMU makes for the other end of its wire.
    """

    def __init__(self, namespace: Namespace, tap: str, nic: str, work: Path, queues: int = 1) -> None:
        self._console = work / "console.log"
        self._log = work / "qemu.log"
        self._path = work / "agent.sock"
        self._process = namespace.start(
            [
                "qemu-system-x86_64", *MACHINE,
                "-serial", f"file:{self._console}",
                "-chardev", f"socket,id=agent,path={self._path},server=on,wait=off",
                "-netdev", f"tap,id=wire,ifname={tap},queues={queues},script=no,downscript=no,vnet_hdr=off",
                "-device", f"{nic},netdev=wire,addr={SLOT:02x}",
            ],
            self._log,
        )  # fmt: skip
        self._socket: socket.socket | None = None

    def wait(self) -> float:
        """Until the machine is up; returns the seconds it took."""
        began = time.monotonic()
        while True:
            with suppress(OSError, ValueError):
                self._connect()
                return time.monotonic() - began
            assert self._process.poll() is None, f"QEMU ended: {self._log.read_text()}"
            waited = time.monotonic() - began
            assert waited < BOOT, f"the machine is not up after {BOOT:g} s:\n{self._console.read_text()[-2000:]}"
            time.sleep(0.2)

    def run(self, script: str, seconds: float = PATIENCE) -> str:
        """Run a shell script in the machine to its end; returns what it printed."""
        status, told = self.attempt(script, seconds)
        assert status == 0, f"in the machine `{script}` ended with status {status}:\n{told[-4000:]}"
        return told

    def attempt(self, script: str, seconds: float = PATIENCE) -> tuple[int, str]:
        """The same for one that may fail: its exit status, and what it printed; errors come last."""
        pid = self._ask(
            "guest-exec", path="/bin/bash", arg=["-c", script], env=[f"PATH={PATH}"], **{"capture-output": True}
        )["pid"]
        deadline = time.monotonic() + seconds
        while not (done := self._ask("guest-exec-status", pid=pid))["exited"]:
            assert time.monotonic() < deadline, f"in the machine `{script}` is not done after {seconds:g} s"
            time.sleep(0.1)
        printed = [base64.b64decode(done.get(name, "")).decode() for name in ("out-data", "err-data")]
        return int(done.get("exitcode", -1)), "".join(printed)

    def write(self, path: str, text: str) -> None:
        """Make a file in the machine."""
        encoded = base64.b64encode(text.encode()).decode()
        self.run(f"mkdir -p $(dirname {path}) && echo {encoded} | base64 -d > {path}")

    def close(self) -> None:
        """Pull the plug: nothing that the machine has written was meant to stay."""
        if self._socket is not None:
            self._socket.close()
        self._process.kill()
        self._process.wait()

    def _connect(self) -> None:
        made = socket.socket(socket.AF_UNIX)
        try:
            made.settimeout(2)
            made.connect(os.fspath(self._path))
            self._socket, self._lines = made, made.makefile("r")
            mark = time.monotonic_ns()
            answer = self._ask("guest-sync", id=mark)
            while answer != mark:  # earlier attempts are answered first, once the agent is there
                answer = json.loads(self._lines.readline())["return"]
            made.settimeout(PATIENCE)
        except BaseException:
            self._socket = None
            made.close()
            raise

    def _ask(self, command: str, **arguments: Any) -> Any:
        assert self._socket is not None, "the machine is not up"
        self._socket.sendall(json.dumps({"execute": command, "arguments": arguments}).encode() + b"\n")
        answer = json.loads(self._lines.readline())
        assert "error" not in answer, f"the guest agent refuses {command}: {answer['error']['desc']}"
        return answer["return"]
