import copy
import json
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from forwarder.settings import PortSettings, Refused, fingerprint, load, parse

RAW: dict[str, Any] = {
    "node": "lb1",
    "hash_key": "000102030405060708090a0b0c0d0e0f",
    "tunnel_source": {"ipv4": "10.0.2.2", "ipv6": "fd00:2::2"},
    "ports": [
        {
            "device": "eth1",
            "driver": "af_packet",
            "gateway": {"ipv4": "10.0.2.1", "ipv6": None, "mac": "02:00:00:00:00:01"},
            "mtu": 1500,
        },
        {"device": "net_null0", "driver": "vdev", "gateway": None, "mtu": 9000},
    ],
    "steering": "software",
    "lcores": {"steering": 0, "workers": [1, 2], "muxing": 3},
    "idle": "sleep",
    "packet_pool": 16384,
    "ring_size": 2048,
    "connection_table": {
        "entries": 1048576,
        "tcp_half_open": 10.0,
        "tcp_established": 7200.0,
        "tcp_closing": 0.2,
        "udp": 59.6,
    },
    "hugepages": True,
}


def raw(**changes: Any) -> dict[str, Any]:
    return copy.deepcopy({**RAW, **changes})


def test_settings_are_typed() -> None:
    settings = parse(raw())
    assert (settings.node, settings.idle, settings.hugepages) == ("lb1", "sleep", True)
    assert settings.hash_key == bytes(range(16))
    assert settings.sources == {4: ip_address("10.0.2.2"), 6: ip_address("fd00:2::2")}
    assert settings.ports == (
        PortSettings("eth1", "af_packet", 1500, {4: ip_address("10.0.2.1")}, bytes.fromhex("020000000001")),
        PortSettings("net_null0", "vdev", 9000, {}, None),
    )
    assert (settings.packet_pool, settings.ring_size, settings.connection_entries) == (16384, 2048, 1048576)


def test_cpus_stand_in_the_order_of_the_stages() -> None:
    assert parse(raw()).cpus == (0, 1, 2, 3)
    assert parse(raw(lcores={"steering": 5, "workers": [5], "muxing": 5})).cpus == (5, 5, 5)


def test_steering_is_by_software_or_by_rss() -> None:
    assert parse(raw(steering="rss")).steering == "rss"
    with pytest.raises(Refused, match="steering: nic"):
        parse(raw(steering="nic"))


def test_timeouts_are_whole_seconds_and_at_least_one() -> None:
    assert parse(raw()).connection_seconds == (10, 7200, 1, 60)


def test_only_the_families_that_are_given_have_a_source() -> None:
    assert parse(raw(tunnel_source={"ipv4": None, "ipv6": "fd00::1"})).sources == {6: ip_address("fd00::1")}
    assert parse(raw(tunnel_source={})).sources == {}


@pytest.mark.parametrize("key", sorted(RAW))
def test_every_key_is_required(key: str) -> None:
    settings = raw()
    del settings[key]
    with pytest.raises(Refused, match=key):
        parse(settings)


@pytest.mark.parametrize(
    "changes",
    [
        {"hash_key": "000"},
        {"hash_key": "not hex digits"},
        {"hash_key": None},
        {"tunnel_source": None},
        {"tunnel_source": {"ipv4": "10.0.2"}},
        {"ports": None},
        {"ports": [{}]},
        {"ports": ["eth1"]},
        {"ports": [{**RAW["ports"][0], "mtu": "large"}]},
        {"ports": [{**RAW["ports"][0], "gateway": {"ipv4": "nowhere"}}]},
        {"ports": [{**RAW["ports"][0], "gateway": {"mac": "02:xx"}}]},
        {"lcores": {"steering": 0, "workers": None, "muxing": 0}},
        {"lcores": {"steering": 0, "workers": ["a"], "muxing": 0}},
        {"lcores": []},
        {"packet_pool": "many"},
        {"packet_pool": float("inf")},
        {"ring_size": None},
        {"connection_table": {}},
        {"connection_table": {**RAW["connection_table"], "udp": "60s"}},
        {"connection_table": {**RAW["connection_table"], "udp": float("inf")}},
        {"connection_table": {**RAW["connection_table"], "udp": float("nan")}},
    ],
)
def test_settings_that_make_no_sense_are_refused_in_one_sentence(changes: dict[str, Any]) -> None:
    with pytest.raises(Refused, match="the forwarder's settings are not complete or not valid") as refused:
        parse(raw(**changes))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("other", [None, [], "text", 7])
def test_what_is_no_object_is_refused(other: Any) -> None:
    with pytest.raises(Refused):
        parse(other)


def test_the_fingerprint_is_that_of_the_content() -> None:
    settings = raw()
    reordered = dict(reversed(settings.items()))
    assert parse(reordered).fingerprint == parse(settings).fingerprint == fingerprint(settings)
    assert fingerprint(raw(ring_size=4096)) != fingerprint(settings)
    assert fingerprint(raw(lcores={"steering": 0, "workers": [2, 1], "muxing": 3})) != fingerprint(settings)
    assert fingerprint(json.loads(json.dumps(settings))) == fingerprint(settings)


def test_a_file_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "forwarder.json"
    path.write_text(json.dumps(RAW))
    assert load(path) == parse(raw())


@pytest.mark.parametrize("text", ["", "{", '{"node": "lb1"', "null", "\x00"])
def test_a_file_that_is_no_settings_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "forwarder.json"
    path.write_text(text)
    with pytest.raises(Refused):
        load(path)


def test_a_missing_or_unreadable_file_is_refused_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"forwarder\.json"):
        load(tmp_path / "forwarder.json")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(Refused, match="binary"):
        load(tmp_path / "binary")
