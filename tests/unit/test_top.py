"""`maglev top`: rates from two statuses, and the screen made of them."""

from __future__ import annotations

import json
from typing import Any

from click.testing import CliRunner
from node_process import NodeProcess, started
from rich.console import Console

from controller.cli import maglev
from controller.top import rates, screen

Json = dict[str, Any]


def status(packets: int, **more: Any) -> Json:
    port = {
        "device": "eth1",
        "receive": {"received": packets, "processed": packets, "reserved": 2048},
        "transmit": {"ready": packets, "sent": packets, "recycled": None},
    }
    traffic = {"packets": packets, "bytes": 100 * packets}
    stats = {
        "received": packets,
        "fates": {"conn_hit": packets, "punt": 7},
        "vips": {"www": traffic},
        "backends": {"web1": traffic},
        "workers": [{"live": 5, "entries": 64, "inserted": packets // 10}],
        "ports": [port],
    }
    forwarder = {"reason": "ok"}
    return {"node": "lb1", "state": "running", "announced": [], "forwarder": forwarder, "stats": stats, **more}


def test_rates_are_differences_per_second() -> None:
    rate = rates(status(1000), status(3000), 2.0)
    assert rate["received"] == 1000
    assert rate["fates"] == {"conn_hit": 1000}, "what did not happen is not listed"
    assert rate["vips"] == {"www": {"packets": 1000, "bits": 800_000}}
    assert rate["new_flows"] == 100


def test_a_forwarder_that_started_anew_or_does_not_answer_has_no_rates() -> None:
    assert rates(status(3000), status(10), 1.0)["received"] is None
    assert rates(status(10), status(10, stats=None), 1.0)["received"] is None


def test_a_backend_that_is_new_has_no_rate_yet() -> None:
    before = status(10)
    before["stats"]["backends"] = {}
    assert rates(before, status(20), 1.0)["backends"] == {}


def shown(after: Json, rate: Json) -> str:
    console = Console(width=100)
    with console.capture() as captured:
        console.print(screen(after, rate))
    return captured.get()


def test_the_screen_shows_rates_pointers_and_flows() -> None:
    text = shown(status(5_000_000), rates(status(0), status(5_000_000), 1.0))
    assert "received 5.00 M packets/s, new flows 500.00 k/s, 5 of 64 flows remembered" in text
    assert "4.00 G" in text, "bits of the vip"
    assert "eth1" in text
    assert "the forwarder does not answer" in shown(status(1, stats=None), rates(status(1), status(1, stats=None), 1))


def test_a_running_node_is_watched(node: NodeProcess) -> None:
    started(node)
    result = CliRunner().invoke(maglev, ["top", "--interval", "0.1", "--count", "2", "--json"])
    assert result.exit_code == 0, result.output
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert [line["received"] for line in lines] == [0, 0]
    result = CliRunner().invoke(maglev, ["top", "--interval", "0.1", "--count", "1"])
    assert "lb1: running" in result.stdout
