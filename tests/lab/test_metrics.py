"""The metrics of two nodes that forward real TCP, beside what the client's and the backends' kernels counted."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from metrics_text import Samples, of_socket, samples, value
from needs import LAB
from whole_lab import whole_lab

from lab import counters, nodes
from lab.counters import FORWARDED, NEW_FLOW, Counters
from lab.nodes import WORK
from lab.topology import BACKENDS, NODES
from lab.traffic import Traffic

REQUESTS = 2000

pytestmark = LAB


@pytest.fixture
def lab() -> Iterator[None]:
    with whole_lab():
        yield


def text(node: str) -> str:
    return of_socket(Path(nodes.ENVIRONMENT["MAGLEV_RUN_DIR"]) / node / "controller.sock")


def total(found: list[Samples], name: str, **labels: str) -> float:
    """The sum over the nodes and over all labels but these."""
    return sum(
        number
        for each in found
        for (known, pairs), number in each.items()
        if known == name and labels.items() <= dict(pairs).items()
    )


def test_counters_agree_with_the_packets_that_were_sent(lab: None) -> None:
    before, old = Counters.read(), [samples(text(node.name)) for node in NODES]
    with Traffic(requests=REQUESTS) as traffic:
        results = traffic.completed()
    sent = counters.when_settled(before, REQUESTS)
    assert sent.agree(REQUESTS), sent.sentence(REQUESTS)
    assert results.answered == REQUESTS

    new = [samples(text(node.name)) for node in NODES]

    def since(name: str, **labels: str) -> float:
        return total(new, name, **labels) - total(old, name, **labels)

    assert sum(since("maglev_packets_total", fate=fate) for fate in FORWARDED) == sent.segments
    assert sum(since("maglev_packets_total", fate=fate) for fate in NEW_FLOW) == REQUESTS
    assert since("maglev_vip_packets_total", vip="www") == sent.segments
    per_backend = {b.name: since("maglev_backend_packets_total", backend=b.name) for b in BACKENDS}
    assert sum(per_backend.values()) == sent.segments
    assert sum(1 for packets in per_backend.values() if packets) == 3, "b4 is none of the vip's"
    assert since("maglev_vip_bytes_total", vip="www") == since("maglev_backend_bytes_total") > 40 * sent.segments
    assert since("maglev_connections_inserted_total") == REQUESTS
    for each in new:
        fates = sum(number for (name, _), number in each.items() if name == "maglev_packets_total")
        held = value(each, "maglev_fragments_held")
        assert value(each, "maglev_packets_received_total") == fates + held
        reasons = sum(number for (name, _), number in each.items() if name == "maglev_reasons_total")
        assert reasons == fates, "every packet has one fate and one reason"
        assert value(each, "maglev_bgp_session_up", neighbor=neighbor(each)) == 1
        assert value(each, "maglev_addresses_announced") == 1


def neighbor(found: Samples) -> str:
    """The one router that a node speaks to."""
    (pairs,) = (pairs for name, pairs in found if name == "maglev_bgp_session_up")
    return dict(pairs)["neighbor"]


def test_promtool_is_content_with_a_node_that_forwards(lab: None) -> None:
    promtool = Path(__file__).parents[2] / "build/promtool/usr/bin/promtool"
    if not promtool.exists():
        pytest.skip("promtool is not there: make build/stamps/promtool")
    with Traffic(requests=100) as traffic:
        traffic.completed()
    judged = subprocess.run(
        [promtool, "check", "metrics"], input=text("lb1"), text=True, capture_output=True, check=False
    )
    assert (judged.returncode, judged.stdout + judged.stderr) == (0, "")
    assert str(WORK) not in text("lb1")
