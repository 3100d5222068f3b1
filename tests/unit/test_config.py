import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from config_text import GOOD, edited
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.config import Config, ConfigError, load, loads
from controller.reconcile import desired_state
from controller.section import Section
from controller.strict import warnings

CONFIGS = Path(__file__).parents[2] / "configs"
REFERENCE = CONFIGS / "maglev.yaml"


def problems_of(text: str) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as refusal:
        loads(text, "lb.yaml")
    return tuple(map(str, refusal.value.problems))


@pytest.mark.parametrize("path", [REFERENCE, *sorted(CONFIGS.glob("examples/*.yaml"))], ids=lambda p: p.name)
def test_what_we_ship_loads(path: Path) -> None:
    assert load(path).all_services


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("examples/*.yaml")), ids=lambda p: p.name)
def test_examples_are_what_we_advise(path: Path) -> None:
    """The laptop's has neither router nor backends that could be probed."""
    config = load(path)
    assert not warnings(path, config) or path.name == "laptop.yaml"
    assert config.forwarder.ports, "it can be run"


def fields(section: Section, given: dict[str, Any], at: str = "") -> Iterator[tuple[str, Any, Any, Any]]:
    """(key, whether the file has it, value, default) of every key of the shape, as far as the file goes."""
    for key, field in type(section).model_fields.items():
        value = getattr(section, key)
        yield f"{at}{key}", key in given, value, field.default
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, tuple) else [value]
        raw = given.get(key)
        raws = raw.values() if isinstance(value, dict) else raw if isinstance(raw, list) else [raw]
        for part, part_raw in zip(inner, raws or [], strict=False):
            if isinstance(part, Section):
                yield from fields(part, part_raw, f"{at}{key}.")


def test_the_reference_shows_every_key_at_its_default() -> None:
    examples = {
        "node",
        "node.tunnel_source",
        "forwarder",
        "forwarder.ports",
        "forwarder.ports.gateway",
        "bgp",
    } | {
        "bgp.neighbors",
        "cluster.nodes",
        "bgp.local_as",
        "bgp.router_id",
        "bgp.next_hop",
        "health_checks",
        "backend_pools",
        "vips",
        "health_checks.path",
        "health_checks.host",
        "health_checks.expect",
        "backend_pools.health_checks",
        "backend_pools.backends",
        "backend_pools.backends.drain",
        "vips.pools",
    }
    shown = set()
    raw = yaml.safe_load(REFERENCE.read_text())
    for key, written, value, default in fields(load(REFERENCE), raw):
        if written:
            shown.add(key)
        per_family = key.endswith((".ipv4", ".ipv6"))
        if written and key not in examples and not per_family and not isinstance(value, Section):
            assert value == default or repr(default) == "PydanticUndefined", key
    every = {key for key, *_ in fields(load(REFERENCE), raw)}
    assert every == shown


def test_values_become_what_the_program_reckons_with() -> None:
    config = loads(GOOD)
    assert config.node.drain_time == 10.0
    assert config.forwarder.connection_table.tcp_established == 7200.0
    assert config.health_checks["web-http"].timeout == 0.5
    assert config.bgp.neighbors[0].hold_time == 9
    assert loads(edited("    port: 80\n", "    port: any\n")).vips[0].port == 0


def test_a_minimal_file_is_enough_and_announces_nothing() -> None:
    config = loads(f"node: {{name: lb1, hash_key: '{1:032}'}}\n")
    assert config.bgp.speaker == "none"
    assert config.all_services == ()


def test_a_hash_key_of_digits_needs_no_quotes() -> None:
    assert loads(f"node: {{name: lb1, hash_key: {'12' * 16}}}\n").node.hash_key == "12" * 16


def test_any_port_and_one_port_of_an_address_may_stand_together() -> None:
    second = "vips:\n  - {name: rest, address: 192.0.2.1, port: any, pools: [web]}\n"
    assert [vip.port for vip in loads(edited("vips:\n", second)).all_services] == [0, 80]


def test_one_backend_may_have_another_weight_in_another_vip() -> None:
    text = GOOD + "  - {name: w2, address: 192.0.2.2, port: 80, pools: [other]}\n"
    text = text.replace("vips:\n", "  other: {backends: [{name: web1, address: 10.0.3.2, weight: 7}]}\nvips:\n")
    www, other = (loads(text).all_services[i] for i in (1, 0))
    assert (www.members[0].weight, other.members[0].weight) == (100, 7)


def test_every_problem_is_told_in_the_order_of_the_file() -> None:
    text = GOOD.replace("10s\nforwarder", "10\nforwarder").replace("mtu: 1500", "mtu: 1").replace("tcp\n", "icmp\n")
    found = problems_of(text)
    assert [line.split(": ")[:2] for line in found] == [
        ["lb.yaml:5", "node.drain_time"],
        ["lb.yaml:11", "forwarder.ports[0].mtu"],
        ["lb.yaml:45", "vips[0].protocol"],
    ]


def test_a_duplicate_key_does_not_hide_other_problems() -> None:
    found = problems_of(edited("  lease: 3s\n", "  lease: 3s\n  lease: 3s\n").replace("mtu: 1500", "mtu: 1"))
    assert [line.split(": ")[1] for line in found] == ["forwarder.ports[0].mtu", "bgp.lease"]


def test_all_rules_are_looked_at_together() -> None:
    found = problems_of(GOOD.replace("ipv4: 10.0.2.2}", "ipv4: null}").replace("pools: [web]", "pools: [web, wub]"))
    assert [line.split(": ")[1] for line in found] == ["bgp.next_hop.ipv4", "vips[0].pools[1]"]


def test_secrets_are_not_repeated() -> None:
    text = GOOD.replace("000102030405060708090a0b0c0d0e0f", "topsecretkey").replace("null}\n  n", '"pass word"}\n  n')
    found = "".join(problems_of(text))
    assert "node.hash_key" in found
    assert "neighbors[0].password" in found
    assert "topsecret" not in found
    assert "pass word" not in found


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "lb.yaml: cannot be read: No such file or directory"),
        (b"", "lb.yaml: is empty; write a configuration"),
        (b"# nothing\n", "lb.yaml: is empty; write a configuration"),
        (b"[]\n", "lb.yaml:1: is a list; write a mapping with keys of node, forwarder"),
        (b"node: 1\nname: \xff\n", "lb.yaml:2: is not UTF-8"),
        (b"node: 1\nname: \x00\n", "lb.yaml:2: is not YAML"),
    ],
)
def test_a_file_that_is_no_configuration_is_refused(tmp_path: Path, content: bytes | None, words: str) -> None:
    path = tmp_path / "lb.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError) as refusal:
        load(path)
    assert f"{tmp_path}/{words}" in str(refusal.value)


def test_a_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not a regular file"):
        load(tmp_path)


def test_a_configuration_cannot_be_changed() -> None:
    config = loads(GOOD)
    with pytest.raises(ValueError, match="frozen"):
        config.node.name = "lb2"  # type: ignore[misc]


def test_a_long_chain_of_pools_is_no_problem() -> None:
    chain = "".join(f"  p{i}: {{backends: [{{pool: p{i + 1}}}]}}\n" for i in range(5000))
    text = GOOD.replace("{pool: spare}", "{pool: p0}").replace("vips:", chain + "  p5000: {}\nvips:")
    assert [m.backend.name for m in loads(text).all_services[0].members] == ["web1", "web2"]


def test_members_of_inner_pools_pass_the_checks_of_their_own_pool() -> None:
    members = {m.backend.name: m.checks for m in loads(GOOD).all_services[0].members}
    assert members == {"web1": ("web-http",), "web2": ("web-http",), "web3": ("tcp-open",)}


def test_a_backend_reached_twice_counts_once_and_passes_the_checks_of_both_ways() -> None:
    text = edited(
        "    backends:\n      - {name: web3",
        "    backends:\n      - {name: web1, address: 10.0.3.2}\n      - {name: web3",
    )
    members = {m.backend.name: m.checks for m in loads(text).all_services[0].members}
    assert members["web1"] == ("tcp-open", "web-http")
    assert len(members) == 3


@pytest.mark.parametrize(
    ("device", "driver"),
    [
        ("eth1", "af_packet"),
        ("net_null0", "vdev"),
        ('"net_af_packet0,iface=eth1"', "vdev"),
        ("netdev0", "af_packet"),
    ],
)
def test_driver_auto_follows_the_kind_of_device(device: str, driver: str) -> None:
    settings = loads(edited("device: eth1", f"device: {device}")).forwarder_settings()
    assert settings["ports"][0]["driver"] == driver


def test_af_xdp_is_asked_for_by_name() -> None:
    settings = loads(edited("driver: auto", "driver: af_xdp")).forwarder_settings()
    assert (settings["ports"][0]["device"], settings["ports"][0]["driver"]) == ("eth1", "af_xdp")


def test_forwarder_settings_are_plain_json_without_what_a_reload_may_change() -> None:
    settings = loads(GOOD).forwarder_settings()
    assert json.loads(json.dumps(settings)) == settings
    assert settings == {
        "node": "lb1",
        "hash_key": "000102030405060708090a0b0c0d0e0f",
        "tunnel_source": {"ipv4": "10.0.2.2", "ipv6": "fd00:2::2"},
        "ports": [
            {
                "device": "eth1",
                "driver": "af_packet",
                "gateway": {"ipv4": "10.0.2.1", "ipv6": None, "mac": None},
                "mtu": 1500,
                "tap": None,
            }
        ],
        "steering": "software",
        "lcores": {"steering": 0, "workers": [1], "muxing": 0},
        "idle": "sleep",
        "packet_pool": 16384,
        "ring_size": 2048,
        "connection_table": {
            "entries": 1048576,
            "tcp_half_open": 10.0,
            "tcp_established": 7200.0,
            "tcp_closing": 10.0,
            "udp": 60.0,
        },
        "hugepages": True,
    }


@st.composite
def shuffled(draw: st.DrawFn) -> dict[str, Any]:
    """A configuration with vips, pools, entries and checks in some order."""
    raw = yaml.safe_load(GOOD)
    raw["vips"].append({"name": "dns", "address": "192.0.2.1", "protocol": "udp", "port": 53, "pools": ["web"]})
    raw["vips"].append({"name": "all", "address": "192.0.2.3", "port": "any", "pools": ["spare", "more"]})
    raw["backend_pools"]["more"] = {
        "health_checks": ["web-http", "tcp-open"],
        "backends": [{"name": f"b{i}", "address": f"10.1.0.{i}", "weight": i} for i in range(1, 9)],
    }
    for vip in raw["vips"]:
        vip["pools"] = draw(st.permutations(vip["pools"]))
    for pool in raw["backend_pools"].values():
        pool["backends"] = draw(st.permutations(pool["backends"]))
        pool["health_checks"] = draw(st.permutations(pool["health_checks"]))
    raw["vips"] = draw(st.permutations(raw["vips"]))
    raw["backend_pools"] = dict(draw(st.permutations(list(raw["backend_pools"].items()))))
    return dict(draw(st.permutations(list(raw.items()))))


def as_config(raw: dict[str, Any]) -> Config:
    return loads(yaml.safe_dump(raw, sort_keys=False))


@settings(deadline=None)
@given(shuffled(), shuffled())
def test_the_order_of_the_file_does_not_matter(one: dict[str, Any], other: dict[str, Any]) -> None:
    first, second = as_config(one).all_services, as_config(other).all_services
    assert first == second
    assert desired_state(first, {}, ()) == desired_state(second, {}, ())


def places(raw: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to everything in a document."""
    if path:
        yield path
    for key, value in raw.items() if isinstance(raw, dict) else enumerate(raw) if isinstance(raw, list) else ():
        yield from places(value, (*path, key))


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8)
    | st.sampled_from(["web", "any", "tcp", "10s", "::1", "10.0.2.2", -1, 1 << 70, "<HttpCheck>", "[key]"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
)  # fmt: skip


@settings(deadline=None)
@given(
    st.sampled_from(list(places(yaml.safe_load(GOOD)))),
    JUNK,
    st.sampled_from(["<x>", "[key]", "pool", "type"]),
)
def test_junk_in_any_place_is_taken_or_refused_and_nothing_else(path: tuple[Any, ...], junk: Any, key: str) -> None:
    raw = yaml.safe_load(GOOD)
    holder = raw
    for part in path[:-1]:
        holder = holder[part]
    holder[path[-1]] = junk
    if isinstance(holder, dict):
        holder[key] = junk
    try:
        as_config(raw)
    except ConfigError as refusal:
        problems = refusal.problems
    else:
        return
    assert all(" write " in p.message or "leave" in p.message for p in problems), problems
    assert all(p.line for p in problems)
