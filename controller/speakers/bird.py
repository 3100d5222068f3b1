"""BIRD as the speaker: it holds the sessions to the routers, with BFD; ExaBGP tells it on loopback what to announce.

ExaBGP stays what the lease withdraws by; when it ends, so does its session to BIRD, and the routes go. BFD finds out
within a third of a second that a machine is dead, where the hold time takes seconds.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import Iterator
from ipaddress import IPv4Address
from pathlib import Path

from controller.config_sections import Bgp, Neighbor
from controller.process import Process, Program
from controller.rundir import RunDir, write_private
from controller.speakers.exabgp import STOP_GRACE, ExabgpSpeaker
from controller.supervisor import Supervisor
from controller.tasks import background, end

EXABGP, BIRD = IPv4Address("127.0.0.1"), IPv4Address("127.0.0.2")
"""The two ends of the session on loopback."""
HOLD_SECONDS = 9
LOOK_SECONDS = 1.0
ANSWER_SECONDS = 1.0


class BirdSpeaker(ExabgpSpeaker):
    """Runs BIRD beside ExaBGP, which has it for its one neighbor."""

    kind = "bird"

    def __init__(self, bgp: Bgp, run_dir: RunDir) -> None:
        super().__init__(_inner(bgp), run_dir)
        self._outer = bgp
        self._heard = dict.fromkeys((str(neighbor.address) for neighbor in bgp.neighbors), "unknown")
        self._started_once = asyncio.Event()
        self._found: Process | None = None
        self._bird = Supervisor(program(run_dir), on_start=self._bird_started)
        self._looking: asyncio.Task[None] | None = None

    @property
    def connected(self) -> bool:
        """Whether ExaBGP answers and BIRD hears it."""
        return super().connected and super().sessions[str(BIRD)] == "up"

    @property
    def sessions(self) -> dict[str, str]:
        """As BIRD tells them; its word for one that is not up stands behind "down - "."""
        return dict(self._heard)

    async def start(self) -> None:
        """Start BIRD or adopt it, then ExaBGP; one with other settings is restarted."""
        path = self._run_dir.bird_configuration
        wanted = render(self._outer)
        same = path.exists() and path.read_text(encoding="utf-8") == wanted
        write_private(path, wanted)
        self._bird.start()
        await self._started_once.wait()
        if self._found and self._found.adopted and not same:
            await self._bird.restart(STOP_GRACE, "its configuration has changed")
        await super().start()
        self._looking = background(self._look_for_ever(), "bird sessions")

    async def stop(self) -> None:
        """ExaBGP first: BIRD withdraws what it has heard from it, and then closes its sessions."""
        await end(self._looking)
        await super().stop()
        await self._bird.stop(STOP_GRACE)
        self._run_dir.bird_pid.unlink(missing_ok=True)

    def _bird_started(self, process: Process) -> None:
        if not self._started_once.is_set():
            self._found = process
            self._started_once.set()

    async def _look_for_ever(self) -> None:
        while True:
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    states = dict(_states(await _ask(self._run_dir.bird_socket)))
            except (OSError, TimeoutError):
                states = {}
            for number, neighbor in enumerate(self._outer.neighbors):
                self._heard[str(neighbor.address)] = states.get(_name(number), "unknown")
            await asyncio.sleep(LOOK_SECONDS)


def program(run_dir: RunDir) -> Program:
    """How BIRD is run, and known again."""
    binary = shutil.which("bird") or "/usr/sbin/bird"
    bird = (binary, "-f", "-c", str(run_dir.bird_configuration), "-s", str(run_dir.bird_socket))
    return Program(
        name="bird",
        argv=(sys.executable, "-m", "controller.locked_exec", str(run_dir.bird_pid), *bird),
        pid_file=run_dir.bird_pid,
        log=run_dir.bird_log,
    )


def _inner(bgp: Bgp) -> Bgp:
    """What ExaBGP is to do: speak to BIRD alone."""
    assert bgp.local_as is not None
    neighbor = Neighbor.model_validate(
        {"address": str(BIRD), "remote_as": bgp.local_as, "hold_time": f"{HOLD_SECONDS}s"}
    )
    return bgp.model_copy(update={"neighbors": (neighbor,), "router_id": EXABGP})


def render(bgp: Bgp) -> str:
    """BIRD's configuration. Routes come from ExaBGP and go to the neighbors; nothing is learned, nor given to the
    kernel. `direct` is there so that next hops can be resolved."""
    families = [version for version in (4, 6) if bgp.next_hop.of(version) is not None]
    channels = "".join(f"    ipv{version} {{ import all; export none; }};\n" for version in families)
    blocks = [
        f"router id {bgp.router_id};\nlog stderr {{ warning, error, fatal, bug }};\n",
        "protocol device { }\nprotocol direct { ipv4; ipv6; }\n",
        'protocol bfd { interface "*" { min rx interval 100 ms; min tx interval 100 ms; multiplier 3; }; }\n',
        f"protocol bgp exabgp {{\n    local {BIRD} as {bgp.local_as};\n    neighbor {EXABGP} as {bgp.local_as};\n"
        f"    passive on;\n    hold time {HOLD_SECONDS};\n{_NO_RESTART}{channels}}}\n",
        *(_neighbor(bgp, number, neighbor, families) for number, neighbor in enumerate(bgp.neighbors)),
    ]
    return "\n".join(blocks)


_EXPORT = 'export where proto = "exabgp";'
_NO_RESTART = "    graceful restart off;\n    long lived graceful restart off;\n"


def _neighbor(bgp: Bgp, number: int, neighbor: Neighbor, families: list[int]) -> str:
    lines = [
        f"local as {bgp.local_as};",
        f"neighbor {neighbor.address} as {neighbor.remote_as};",
        f"hold time {neighbor.hold_time:.0f};",
        "bfd on;",
        "connect delay time 1;",
        "connect retry time 2;",
        "error wait time 1, 5;",  # the default keeps a session that flapped out for a minute
        *([f'password "{neighbor.password}";'] if neighbor.password is not None else []),
        *(
            f"ipv{version} {{ import none; {_EXPORT} next hop address {bgp.next_hop.of(version)}; }};"
            for version in families
        ),
    ]
    return f"protocol bgp {_name(number)} {{\n{_NO_RESTART}" + "".join(f"    {line}\n" for line in lines) + "}\n"


def _name(number: int) -> str:
    return f"neighbor{number}"


async def _ask(path: Path) -> str:
    """What BIRD answers to `show protocols`: lines with a code each, the last one of which is followed by a space."""
    reader, writer = await asyncio.open_unix_connection(path)
    try:
        await reader.readline()  # it greets
        writer.write(b"show protocols\n")
        answer = []
        while line := await reader.readline():
            answer.append(line.decode(errors="replace"))
            if line[:4].isdigit() and line[4:5] == b" ":
                break
        return "".join(answer)
    finally:
        writer.close()


def _states(answer: str) -> Iterator[tuple[str, str]]:
    """(protocol, "up" or "down - STATE") of each BGP protocol, from lines such as
    `neighbor0 BGP --- start 05:00:01.000 Active Socket: Connection refused`."""
    for line in answer.splitlines():
        words = line.removeprefix("1002-").split()
        if words[1:2] == ["BGP"]:
            state = " ".join(words[5:] or words[3:4])
            yield words[0], "up" if state == "Established" else f"down - {state}"
