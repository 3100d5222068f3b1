"""What the forwarder process does not take: settings at its start, states and requests at its socket."""

from __future__ import annotations

import json
import random
import time
from typing import Any

import pytest
from needs import WIRE
from packets.world import VIP, flow, member, state, vip
from wire import (
    SERVICE,
    TWO,
    Asker,
    Forwarder,
    Wire,
    frame,
    packet_sockets,
    settings,
    wait_until,
)

pytestmark = WIRE


def port(**changes: Any) -> list[dict[str, Any]]:
    return [settings()["ports"][0] | changes]


def cpus() -> dict[str, Any]:
    return settings()["lcores"]


REFUSALS: dict[str, tuple[dict[str, Any] | str, str]] = {
    "no such interface": ({"ports": port(device="eth9")}, "there is no network interface eth9"),
    "no hugepages": ({"hugepages": True, "packet_pool": 10_000_000}, "of hugepages are needed and"),
    "no such CPU": ({"lcores": cpus() | {"workers": [999]}}, "CPU 999 in forwarder.lcores cannot be used here"),
    "a pool too small": ({"packet_pool": 1024}, "a packet pool of 1024 is too small"),
    "a pool of nothing": ({"packet_pool": 0}, ""),
    "a ring of 1000 slots": ({"ring_size": 1000}, ""),
    "a device that DPDK has not": ({"ports": port(device="net_nothing0", driver="vdev")}, "port net_nothing0 could"),
    "a key of 3 bytes": ({"hash_key": "010203"}, ""),
    "a connection table of nothing": ({"connection_table": settings()["connection_table"] | {"entries": 0}}, ""),
    "no ports": ({"ports": []}, ""),
    "not JSON": ("{broken", "cannot read the forwarder's settings"),
    "not an object": ("[]", "not complete or not valid"),
    "an empty file": ("", "cannot read the forwarder's settings"),
    "a key missing": (json.dumps({k: v for k, v in settings().items() if k != "ring_size"}), "ring_size"),
    "a port that is no object": ({"ports": ["eth1"]}, "not complete or not valid"),
}


@pytest.mark.parametrize(("asked", "expected"), REFUSALS.values(), ids=REFUSALS)
def test_refused_in_one_sentence(forwarder: Forwarder, asked: dict[str, Any] | str, expected: str) -> None:
    """Exit status 2 and what to do about it; no traceback, nothing left behind but the pid file."""
    config = asked if isinstance(asked, str) else settings(**asked)
    status, said = forwarder.refused(config)
    assert status == 2, said
    *above, sentence = said.splitlines()
    assert all(line.startswith(("EAL:", "MBUF:", "RING:")) for line in above), said  # DPDK's own, where it says more
    assert expected in sentence
    assert not forwarder.socket.exists()
    assert not forwarder.tables().exists()
    assert packet_sockets() == []


def test_no_settings_at_all(forwarder: Forwarder) -> None:
    status, said = forwarder.refused()
    assert (status, len(said.splitlines())) == (2, 1)


def test_a_second_forwarder_of_the_same_run_directory_is_refused(wire: Wire, serving: Forwarder) -> None:
    """And the first one goes on, with its socket and its pid file."""
    digest = serving.ask("ping")["digest"]
    status, said = serving.refused()
    assert (status, len(said.splitlines())) == (1, 1), said
    assert "a forwarder runs already" in said
    ping = serving.ask("ping")
    assert ping["digest"] == digest
    assert (serving.run_dir / "forwarder.pid").read_text() == f"{ping['pid']}\n"
    wire.send(flow(i) for i in range(50))
    assert len(list(wire.tunneled())) == 50


def test_a_push_that_is_cut_anywhere_leaves_the_old_state_or_the_new(serving: Forwarder) -> None:
    """200 controllers that die while they push, some of them after the last byte."""
    dice = random.Random(200)
    states = [
        state(TWO, *(vip(f"v{i}", f"192.0.2.{i}", [member("web1", w), "dns1"]) for i in range(1, 20)))
        for w in (1, 50)
    ]
    digests = [serving.ask("state", state=one)["digest"] for one in states]
    now = 1
    for number in range(200):
        target = 1 - now
        message = frame({"op": "state", "state": states[target]})
        cut = len(message) if number % 10 == 0 else dice.randrange(len(message))
        asker = Asker(serving.socket)
        asker.socket.sendall(message[:cut])
        if number % 20 == 0:
            assert asker.answer()["digest"] == digests[target]
        asker.close()
        if cut == len(message):
            wait_until(lambda wanted=target: serving.ask("ping")["digest"] == digests[wanted], "it was whole", 2)
            now = target
        assert serving.ask("ping")["digest"] == digests[now]


def test_a_refused_state_changes_nothing(serving: Forwarder) -> None:
    before = serving.ask("ping")
    for wrong in (
        None,
        [],
        {"version": 2},
        SERVICE | {"version": 2},
        SERVICE | {"backends": {}},
        SERVICE | {"vips": [vip("www", VIP, ["web1"], table_size=65536)]},
        SERVICE | {"vips": [vip("www", VIP, ["web1"]), vip("www", "192.0.2.2", ["web1"])]},
        SERVICE | {"backends": {"web1": "fd00:3::2", "dns1": "10.0.4.2"}},
    ):
        answer = serving.ask("state", state=wrong)
        assert not answer["ok"], wrong
        assert answer["error"]
    after = serving.ask("ping")
    assert (after["digest"], after["generation"]) == (before["digest"], before["generation"])


@pytest.mark.parametrize(
    "raw",
    [
        b"\xff\xff\xff\xff" + bytes(100),
        b"\0\0\0\0",
        b"\0\0\0\x04nope",
        b"\0\0\0\x02[]",
        b"\0\0\0\x02{}",
        b"\0\0\0\x04null",
        frame({"op": "reboot"}),
        frame({"op": ["ping"]}),
        frame({"op": "lookup"}),
        frame({"op": "flush", "backend": "nobody"}),
        b"\0\0\0\x04\xff\xfe\xfd\xfc",
    ],
    ids=range(11),
)
def test_what_is_not_a_request_is_answered_with_an_error(serving: Forwarder, raw: bytes) -> None:
    asker = Asker(serving.socket)
    asker.socket.sendall(raw)
    answer = asker.answer()
    assert not answer["ok"]
    assert isinstance(answer["error"], str)
    asker.close()
    assert serving.ask("ping")["ok"]


def test_every_lcore_turns_while_nothing_comes(serving: Forwarder) -> None:
    before = serving.ask("ping")["lcores"]
    time.sleep(1.0)
    for was, now in zip(before, serving.ask("ping")["lcores"], strict=True):
        assert now["turns"] > was["turns"], now
