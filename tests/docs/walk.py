"""Walks the operators' documents: types their commands, in their order, on machines that are network namespaces.

    client 198.51.100.7 --- router --- lb1 10.0.2.2
                              |------- web1 10.0.3.2
                              \\------- web2 10.0.4.2

A block of a document that begins with ```sh lb1 (or router, web1, client) is typed on that machine and must succeed;
with `stays` behind it, it is a program that is left running, with `fails` it must not succeed. A block without a
machine asks for what no namespace has (packages, systemd) and is only listed. A kernel without GRE gets a program in
its place. Everything happens in namespaces, the machine is left as it was.

As root: python tests/docs/walk.py [--transcript]
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).resolve().parents[2]
DOCUMENTS = ("install.md", "sizing.md", "operating.md", "troubleshooting.md")
BLOCK = re.compile(r"^```sh(?P<words>[^\n]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
PATIENCE = 20.0

NODES = {"lb1": ("10.0.2", "fd00:2"), "web1": ("10.0.3", "fd00:3"), "web2": ("10.0.4", "fd00:4")}
CLIENT = ("198.51.100", "2001:db8:ffff")

SERVICE = """
import asyncio, socket, sys
from lab.backend import Connection

async def serve():
    listener = socket.create_server(("::", 80), family=socket.AF_INET6, dualstack_ipv6=True)
    server = await asyncio.get_running_loop().create_server(lambda: Connection(sys.argv[1]), sock=listener)
    await server.serve_forever()

asyncio.run(serve())
"""


class Block(NamedTuple):
    """Commands of the document, and where they are typed; `machine` empty: nowhere."""

    place: str
    machine: str
    how: str
    text: str


def blocks(name: str) -> list[Block]:
    """The shell blocks of a document. How they are to end: `stays`, `fails`, or nothing is said."""
    text = (SOURCE / "docs" / name).read_text()
    found = []
    for match in BLOCK.finditer(text):
        machine, how, *_ = [*match["words"].split(), "", ""]
        found.append(Block(f"{name}:{text.count(chr(10), 0, match.start()) + 2}", machine, how, match["text"]))
    return found


def privately() -> None:
    """Go on in a mount namespace of our own: /run, /opt and so on are empty, /etc is a copy."""
    if os.environ.get("MAGLEV_WALK") != "private":
        environment = {**os.environ, "MAGLEV_WALK": "private"}
        arguments = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", sys.executable]
        os.execvpe("unshare", [*arguments, *sys.argv], environment)
    for directory in ("/run", "/opt", "/var/lib"):
        command("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", directory)
    command("cp", "-a", "/etc", "/run/etc")
    command("mount", "--bind", "/run/etc", "/etc")
    share = Path("/opt/maglev/share")
    share.mkdir(parents=True)
    (share / "maglev").symlink_to(SOURCE)
    Path("/opt/maglev/bin").symlink_to(Path(sys.executable).parent)


def command(*words: str) -> None:
    """Run a command that must succeed."""
    subprocess.run(words, check=True)


def build() -> None:
    """Machines with addresses and a default route, as they are when the document begins."""
    for name in ("router", "client", *NODES):
        command("ip", "netns", "add", name)
        command("ip", "-n", name, "link", "set", "lo", "up")
    inside("router", "sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1")
    wire("client", CLIENT, host="7", mtu="1500")
    for name, networks in NODES.items():
        wire(name, networks, host="2", mtu="1600")
    inside("lb1", "ip link add eth0 type veth peer name other && ip link set eth0 up")  # by which one logs in


def wire(name: str, networks: tuple[str, str], host: str, mtu: str) -> None:
    """Connect a machine to the router by its eth1; what a wire would do to packets, veth is told to do."""
    four, six = networks
    command(
        *("ip", "-n", name, "link", "add", "eth1", "mtu", mtu, "type", "veth"),
        *("peer", "name", name, "mtu", mtu, "netns", "router"),
    )
    for machine, device, last in ((name, "eth1", host), ("router", name, "1")):
        inside(machine, f"sysctl -qw net.ipv6.conf.{device}.accept_dad=0")
        inside(machine, f"ethtool -K {device} tx off tso off gso off > /dev/null")
        inside(machine, f"ip address add {four}.{last}/24 dev {device}")
        inside(machine, f"ip address add {six}::{last}/64 dev {device}")
        inside(machine, f"ip link set {device} up")
    inside(name, f"ip route add default via {four}.1 && ip -6 route add default via {six}::1")


def inside(machine: str, text: str) -> None:
    """Type something that is not in the document."""
    subprocess.run(["ip", "netns", "exec", machine, "sh", "-euc", text], check=True)


def has_gre() -> bool:
    """Whether this kernel opens GRE by itself."""
    done = subprocess.run(
        ["ip", "-n", "client", "link", "add", "probe0", "type", "gre", "local", "192.0.2.99", "remote", "any"],
        capture_output=True,
        check=False,
    )
    return done.returncode == 0


def without_gre(block: Block) -> Block:
    """The same, with a program and a TUN device in place of the kernel's GRE."""
    text = re.sub(r"^modprobe .*\n", "", block.text, flags=re.MULTILINE)
    text = re.sub(r"^ip link add (\S+) type (ip6)?gre .*$", r"ip tuntap add \1 mode tun", text, flags=re.MULTILINE)
    text = re.sub(r"(check-backend .*)", r"\1 --tunnel maglev4", text)
    return block._replace(text=text)


class Walk:
    """Types blocks, and remembers what stays."""

    def __init__(self, transcript: bool) -> None:
        self.transcript = transcript
        self.gre = has_gre()
        self.staying: list[subprocess.Popen[bytes]] = []

    def take(self, block: Block) -> bool:
        """Type one block; False when it failed."""
        if not block.machine:
            print(f"{block.place}: not here: {block.text.splitlines()[0]} ...")
            return True
        if block.machine.startswith("web") and not self.gre:
            block = without_gre(block)
        words = ["ip", "netns", "exec", block.machine, "bash", "-euc", block.text]
        environment = {**os.environ, "PATH": f"/opt/maglev/bin:{os.environ['PATH']}"}
        if block.how == "stays":
            with Path(f"/run/{block.machine}.log").open("ab") as log:
                self.staying.append(subprocess.Popen(words, stdout=log, stderr=log, env=environment))
            time.sleep(1)
            print(f"{block.place}: {block.machine}: left running")
            return True
        done = self._until(block.how != "fails", words, environment)
        right = (done.returncode == 0) == (block.how != "fails")
        if self.transcript or not right:
            print(f"--- {block.machine}\n{block.text.rstrip()}\n--- says\n{done.stdout.rstrip()}\n---")
        print(f"{block.place}: {block.machine}: exit status {done.returncode}{'' if right else ', which is wrong'}")
        return right

    def _until(
        self, succeeds: bool, words: list[str], environment: dict[str, str]
    ) -> subprocess.CompletedProcess[str]:
        """A reader waits for a session or a health check as well."""
        deadline = time.monotonic() + PATIENCE
        while True:
            done = subprocess.run(
                words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment, check=False
            )
            if (done.returncode == 0) == succeeds or time.monotonic() > deadline:
                return done
            time.sleep(0.5)

    def service(self, machine: str) -> None:
        """What a backend has of its own: a service; and a program that opens GRE where the kernel does not."""
        programs = [["-c", SERVICE, machine]] + ([] if self.gre else [["-m", "lab.decap", "maglev4"]])
        for words in programs:
            inside = ["ip", "netns", "exec", machine, sys.executable, *words]
            self.staying.append(subprocess.Popen(inside, cwd=SOURCE))


def main() -> int:
    """Walk; returns the exit status."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--transcript", action="store_true", help="print what the commands say")
    options = parser.parse_args()
    privately()
    build()
    walk = Walk(options.transcript)
    seen: set[str] = set()
    every = [block for name in DOCUMENTS for block in blocks(name)]
    for block in every:
        if not walk.take(block):
            return 1
        if block.machine in ("web1", "web2") and block.machine not in seen:
            seen.add(block.machine)
            walk.service(block.machine)
    print("the documents were walked to their end")
    return 0


if __name__ == "__main__":
    sys.exit(main())
