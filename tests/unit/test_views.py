from __future__ import annotations

from typing import Any

import pytest
from config_text import edited
from fake_forwarder import reason

from controller import offline, views
from controller.config import loads

STATS: dict[str, Any] = {
    "received": 9,
    "fates": {"hash_new": 1, "punt": 0, "malformed": 5, "too_big": 3},
    "backends": {},
    "ports": [],
    "workers": [],
    "pool": {"size": 512, "free": 512},
}
REASONS = {
    "new_flow": reason("hash_new", "forwarded", 1, "a new flow"),
    "ipv4_checksum": reason("malformed", "dropped", 4, "a wrong checksum"),
    "too_big_rate": reason("too_big", "dropped", 3, "too many answers"),
    "ipv6_cut": reason("malformed", "dropped", 1, "no whole header"),
}


def shown(stats: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The lines of the table of fates, with one space between columns."""
    views._stats(stats)
    lines = capsys.readouterr().out.split("ports")[0].splitlines()
    return [("  " if line.startswith("  ") else "") + " ".join(line.split()) for line in lines]


def test_each_fate_that_drops_is_followed_by_its_reasons(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown({**STATS, "reasons": REASONS}, capsys) == [
        "packets received: 9",
        "fate packets",
        "hash_new 1",
        "malformed 5",
        "  a wrong checksum 4",
        "  no whole header 1",
        "too_big 3",
        "  too many answers 3",
    ]


def test_an_earlier_forwarder_that_tells_no_reasons_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(STATS, capsys)[2:] == ["hash_new 1", "malformed 5", "too_big 3"]


@pytest.mark.parametrize(
    ("over", "line"),
    [
        ([], "vip www: load bound 1.25, no backend is over it"),
        (["b1", "b2"], "vip www: load bound 1.25, over it: b1, b2"),
        (
            [f"b{i}" for i in range(20)],
            "vip www: load bound 1.25, over it: b0, b1, b2, b3, b4, b5, b6, b7 and 12 more",
        ),
    ],
)
def test_status_says_who_is_over_a_load_bound(capsys: pytest.CaptureFixture[str], over: list[str], line: str) -> None:
    views._stats({**STATS, "load_bounds": {"www": {"bound": 1.25, "over": over}}})
    assert line in capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(
    ("workers", "line"),
    [
        (1, "steering: rss with 1 worker"),
        (3, "steering: rss with 3 workers, where every port spreads flows over as many queues by RSS"),
    ],
)
def test_check_says_what_rss_asks_of_the_ports(capsys: pytest.CaptureFixture[str], workers: int, line: str) -> None:
    answer = {"node": "lb1", "announced": [], "probes": 0, "cluster": {}, "vips": []}
    answer |= {"health_checks": [], "panic_above": {}}
    views.check({**answer, "steering": "rss", "workers": workers})
    assert line in " ".join(capsys.readouterr().out.split())
    views.check({**answer, "steering": "software", "workers": workers})
    assert "steering" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("steering", "line"),
    [
        ({"layout": "rss", "instead": None}, "steering: rss"),
        ({"layout": "software", "instead": None}, "steering: software"),
        ({"layout": "software", "instead": "software, since a port cannot"}, "software, since a port cannot"),
    ],
)
def test_status_shows_the_layout_in_force_and_why(
    capsys: pytest.CaptureFixture[str], steering: dict[str, Any], line: str
) -> None:
    views._steering(steering)
    assert capsys.readouterr().out.splitlines() == [line]


def test_check_shows_the_times_of_every_check_and_pools_that_are_kept(capsys: pytest.CaptureFixture[str]) -> None:
    times = "tcp-open: {type: tcp, port: 80, fast_interval: 250ms"
    text = edited("tcp-open: {type: tcp, port: 80", times)
    views.check(offline.check(loads(text.replace("[tcp-open]\n", "[tcp-open]\n    panic_above: 0.5\n"))))
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines[-4:] == [
        "check type probes every in doubt timeout rise fall",
        "tcp-open tcp 1 1s 250ms 500ms 2 3",
        "web-http http 2 1s 1s 500ms 2 3",
        "pool spare: while more than 50% of it is down, all of it is kept in service",
    ]


def test_status_says_which_pools_are_in_panic_and_what_keeps_probes(capsys: pytest.CaptureFixture[str]) -> None:
    views._panics({"web": {"down": 3, "of": 4, "vips": ["www", "www-v6"]}})
    views._probes({"targets": 9, "at_once": 768, "too_many": True, "not_probed": 2})
    assert capsys.readouterr().out.splitlines() == [
        "panic: 3 of 4 backends of pool web are down, all are kept for www, www-v6",
        "2 of 9 checks cannot be made by this node: see last probe",
        "768 probes at a time at most, by the limit of open files: when many fail, some are late",
    ]
    views._panics({})
    views._probes({"targets": 9, "at_once": 768, "too_many": False, "not_probed": 0})
    assert capsys.readouterr().out == ""
