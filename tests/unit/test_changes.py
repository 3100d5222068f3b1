from __future__ import annotations

import pytest
from config_text import GOOD

from controller.changes import changes, restart_needed
from controller.config import loads


def edited(old: str, new: str) -> str:
    assert old in GOOD
    return GOOD.replace(old, new)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("drain_time: 10s", "drain_time: 20s", ["node.drain_time changes"]),
        ("weight: 100}", "weight: 50}", ["backend web1: 10.0.3.2, weight 100, web-http -> 10.0.3.2, weight 50"]),
        ("port: 80, rise: 2, fall: 3}", "port: 81, rise: 2, fall: 3}", ["health check tcp-open changes"]),
        ("[web-http]\n", "[web-http]\n    panic_above: 0.5\n", ["panic_above of pool web is added"]),
        ("    affinity: flow", "    affinity: client", ["vip www changes"]),
        ("    affinity: flow", "    load_bound: 1.25", ["vip www changes"]),
        ("  - name: www\n", "  - name: web\n", ["vip web is added", "vip www is removed"]),
        ("      - {pool: spare}\n", "", ["backend web3 is removed"]),
        (", drain: true}", "}", ["weight 100, drain, web-http -> 10.0.4.2, weight 100, web-http"]),
    ],
)
def test_each_change_is_told(old: str, new: str, expected: list[str]) -> None:
    before, after = loads(GOOD), loads(edited(old, new))
    assert restart_needed(before, after) == []
    told = changes(before, after)
    assert len(told) == len(expected)
    assert all(part in line for part, line in zip(expected, told, strict=True))


def test_nothing_changes_with_the_same_file_in_another_order() -> None:
    lines = "      - {name: web1, address: 10.0.3.2, weight: 100}\n"
    other = edited(lines, "").replace("      - {pool: spare}\n", f"      - {{pool: spare}}\n{lines}")
    assert changes(loads(GOOD), loads(other)) == []


@pytest.mark.parametrize(
    ("old", "new", "keys"),
    [
        ("name: lb1", "name: lb2", ["node.name"]),
        ("ring_size: 2048", "ring_size: 4096", ["forwarder.ring_size"]),
        ("udp: 60s", "udp: 61s", ["forwarder.connection_table.udp"]),
        ("hold_time: 9s", "hold_time: 8s", ["bgp.neighbors"]),
        ("lease: 3s", "lease: 4s", ["bgp.lease"]),
    ],
)
def test_what_a_running_node_cannot_follow_is_named(old: str, new: str, keys: list[str]) -> None:
    assert restart_needed(loads(GOOD), loads(edited(old, new))) == keys
