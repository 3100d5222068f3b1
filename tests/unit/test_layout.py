"""Which layout is in force: what was asked for, or a fallback that says why."""

from dataclasses import dataclass, replace
from typing import Any

import pytest
from test_environment import SETTINGS

from forwarder import layout
from forwarder._dataplane import STEERING_SEED
from forwarder.settings import PortSettings

PORTS = tuple(PortSettings(device, "af_packet", 1500, {}, None) for device in ("eth1", "eth2"))
RSS = replace(SETTINGS, steering="rss", ports=PORTS, worker_cpus=(2, 3), steering_cpu=0, muxing_cpu=0)
LACKS = "has only one queue"
WHY = "steering: software in place of rss: port eth2 has only one queue; 2 workers need RSS over as many queues"


@dataclass
class FakePort:
    """A port as it was opened: with the queues that were asked for, or with one and what it lacks."""

    queues: int = 2
    buckets: int = 128
    lacks: str | None = None

    def narrow(self) -> None:
        self.queues = 1


def in_force(settings: Any, *ports: FakePort) -> layout.Layout:
    return layout.in_force(settings, ports)  # type: ignore[arg-type]


def test_software_is_as_it_was_asked_for() -> None:
    settings = replace(RSS, steering="software")
    assert layout.queues(settings) == 1
    found = in_force(settings, FakePort(1), FakePort(1))
    assert found == layout.Layout("software", None, (0, 2, 3, 0), "sleep", STEERING_SEED)


def test_rss_where_all_ports_can_do_it() -> None:
    """Its stages are the workers; its spread is the size of the smallest table."""
    assert layout.queues(RSS) == 2
    found = in_force(RSS, FakePort(buckets=512), FakePort(buckets=64))
    assert (found.name, found.instead, found.cpus, found.idle) == ("rss", None, (2, 3), "sleep")
    assert found.spread != STEERING_SEED
    assert found.spread != in_force(RSS, FakePort(buckets=512), FakePort(buckets=128)).spread
    assert found.spread == in_force(RSS, FakePort(buckets=64), FakePort(buckets=128)).spread


def test_one_worker_has_all_flows_in_either_layout() -> None:
    settings = replace(RSS, worker_cpus=(3,))
    assert layout.queues(settings) == 1
    assert in_force(settings, FakePort(1), FakePort(1)) == layout.Layout("rss", None, (3,), "sleep", STEERING_SEED)


def test_one_port_that_cannot_do_it_changes_the_layout_of_all() -> None:
    ports = [FakePort(), FakePort(1, 1, LACKS)]
    assert in_force(RSS, *ports) == layout.Layout("software", WHY, (0, 2, 3, 0), "sleep", STEERING_SEED)
    assert [port.queues for port in ports] == [1, 1]


@pytest.mark.parametrize(
    ("changes", "idle", "more"),
    [
        ({"idle": "spin", "muxing_cpu": 1}, "spin", ""),
        ({"idle": "spin"}, "sleep", ". And idle: sleep in place of spin, since CPU 0 has several stages"),
        ({"idle": "yield", "muxing_cpu": 2}, "sleep", ". And idle: sleep in place of yield, since CPU 2 has several"),
    ],
)
def test_stages_that_come_to_share_a_cpu_do_not_spin(changes: dict[str, Any], idle: str, more: str) -> None:
    found = in_force(replace(RSS, **changes), FakePort(), FakePort(1, 1, LACKS))
    assert found.idle == idle
    assert found.instead is not None
    assert found.instead.startswith(WHY + more)
