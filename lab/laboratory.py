"""The lab as a whole: up, back to its starting point, down."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from typing import Final

from controller.rundir import RunDir
from lab import machine, namespaces, nodes, topology
from lab.namespaces import SOURCE, LabError
from lab.nodes import WORK
from lab.topology import BACKENDS, DECAP_DEVICE, NODES, ROUTER, TUNNEL_MTU, Host

POOL: Final = BACKENDS[:3]  # the backends that the pool starts with; the fourth may join
HUGEPAGES: Final = 64  # 2 MB pages per node, which takes about 40
PATIENCE: Final = 30.0  # seconds for a node to get ready
UP: Final = WORK / "up"  # exists while the lab is whole
PAGES_NOTE: Final = WORK / "hugepages_added"
ROUTER_CONFIG: Final = SOURCE / "configs/bird/router.conf"

Say = Callable[[str], None]


def wait_until(condition: Callable[[], bool], timeout: float, what: str) -> float:
    """Poll until the condition holds; returns the seconds it took."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > timeout:
            raise LabError(f"after {timeout:g} s it is still not so that {what}.")
        time.sleep(0.05)
    return time.monotonic() - began


def is_up() -> bool:
    """Whether `up` has finished, `down` has not begun, and no reboot took the namespaces."""
    return UP.exists() and bool(namespaces.existing())


def up(say: Say, tunnel_mtu: int = TUNNEL_MTU) -> None:
    """Build the lab and start everything in it; returns once the router spreads the vip over all nodes."""
    machine.require()
    for path in (ROUTER_CONFIG, nodes.TEMPLATE):
        if not path.exists():
            raise LabError(f"{path} is missing: the lab runs from a source checkout.")
    down()  # what a crash may have left
    WORK.mkdir(mode=0o750)
    say("hugepages")
    hugepages = machine.reserve_hugepages(HUGEPAGES * len(NODES), PAGES_NOTE)
    say("namespaces and links")
    topology.build(tunnel_mtu)
    say("router and backends")
    ROUTER.start(["bird", "-f", "-c", str(ROUTER_CONFIG), "-s", str(WORK / "bird.ctl")], WORK / "router.log")
    for backend in BACKENDS:
        start_server(backend)
        if not topology.decapsulates_itself(backend):
            _start_module(backend, "lab.decap", DECAP_DEVICE)
    say("nodes")
    for node in NODES:
        nodes.configure(node, POOL, hugepages, tunnel_mtu)
        nodes.start(node)
    _wait_ready()
    UP.touch()


def reset(say: Say) -> None:
    """Bring a lab that is up back to its starting point, whatever an earlier run left of it."""
    say("back to the starting point")
    for backend in BACKENDS:
        if not server_pid(backend):
            start_server(backend)
    for node in NODES:
        nodes.reconfigure(node, POOL)
        if not nodes.runs(node):
            nodes.start(node)
    wait_until(lambda: all(map(nodes.runs, NODES)), PATIENCE, "every node runs")
    nodes.change_pool(POOL)
    _wait_ready()


def down() -> None:
    """Remove every trace of the lab; also of one that was never finished, or is gone already."""
    UP.unlink(missing_ok=True)
    namespaces.remove_all()
    for node in NODES:  # a node that was killed has left its connection tables for the next one
        RunDir(node.name, WORK / "run").remove()
    machine.restore_hugepages(PAGES_NOTE)
    if WORK.exists():
        shutil.rmtree(WORK)


def start_server(backend: Host) -> None:
    """Start a backend's HTTP server."""
    _start_module(backend, "lab.backend", backend.name)


def server_pid(backend: Host) -> int | None:
    """The process of a backend's HTTP server, if it runs."""
    return backend.namespace.find("lab.backend")


def settled(pool: set[str]) -> bool:
    """Whether on every node exactly these backends own slots, and all forward by the same state."""
    same = len({nodes.status(node)["digest"] for node in NODES}) == 1
    return same and all(set(nodes.slots(node)) == pool for node in NODES)


def all_announced() -> bool:
    """Whether the router spreads the vip over every node."""
    return topology.next_hops() == {str(node.address) for node in NODES}


def _start_module(host: Host, module: str, argument: str) -> None:
    log = WORK / f"{host.name}.log"
    host.namespace.start([sys.executable, "-m", module, argument], log)


def _wait_ready() -> None:
    names = {backend.name for backend in POOL}
    try:
        wait_until(lambda: all(map(nodes.runs, NODES)), PATIENCE, "every node runs")
        wait_until(all_announced, PATIENCE, "the router has a route to every node")
        wait_until(lambda: settled(names), PATIENCE, f"every node serves {', '.join(sorted(names))}")
    except LabError as error:
        raise LabError(" ".join([str(error), *filter(None, map(nodes.last_words, NODES))])) from error
