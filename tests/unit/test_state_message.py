import copy
import time
from ipaddress import ip_address
from typing import Any

import pytest

from forwarder.hashing.slot_table import SCHEDULERS
from forwarder.state_message import Member, StateMessage, StateRefused, VipMessage, parse

WWW = {
    "name": "www",
    "address": "192.0.2.1",
    "protocol": "tcp",
    "port": 80,
    "scheduler": "maglev",
    "affinity": "flow",
    "table_size": 65537,
    "members": [["web1", 100, "up"], ["web2", 0, "up"], ["web3", 5, "drain"], ["web4", 5, "down"]],
}
DNS = {
    **WWW,
    "name": "dns",
    "address": "2001:db8::1",
    "protocol": "udp",
    "port": 0,
    "affinity": "client",
    "table_size": 7,
    "members": [],
}


def state(**changes: Any) -> dict[str, Any]:
    message = {
        "version": 1,
        "backends": {"web1": "10.0.3.2", "web2": "10.0.4.2", "web3": "10.0.5.2", "web4": "fd00::4"},
        "vips": [WWW, DNS],
    }
    return copy.deepcopy({**message, **changes})


def with_vip(**changes: Any) -> dict[str, Any]:
    return state(vips=[{**WWW, **changes}])


def test_a_good_message_is_typed() -> None:
    message = parse(state())
    assert message.backends["web4"] == ip_address("fd00::4")
    www, dns = message.vips
    assert www == VipMessage(
        name="www",
        address=ip_address("192.0.2.1"),
        protocol=6,
        port=80,
        client_affinity=False,
        scheduler="maglev",
        table_size=65537,
        members=(
            Member("web1", 100, "up"),
            Member("web2", 0, "up"),
            Member("web3", 5, "drain"),
            Member("web4", 5, "down"),
        ),
    )
    assert dns.key == (ip_address("2001:db8::1"), 17, 0)
    assert dns.client_affinity
    assert dns.members == ()


@pytest.mark.parametrize("bound", [None, 1.01, 1.25, 2, 10])
def test_a_vip_may_have_a_load_bound(bound: float | None) -> None:
    (www,) = parse(with_vip(load_bound=bound)).vips
    assert www.load_bound == bound


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_every_scheduler_is_taken(scheduler: str) -> None:
    (vip,) = parse(with_vip(scheduler=scheduler)).vips
    assert vip.scheduler == scheduler


def test_only_members_that_are_up_and_have_weight_own_slots() -> None:
    www, dns = parse(state()).vips
    assert www.weights == {"web1": 100}
    assert dns.weights == {}


def test_an_empty_state_is_a_state() -> None:
    assert parse({"version": 1, "backends": {}, "vips": []}) == StateMessage({}, ())


def test_the_cluster_may_be_left_out_and_is_typed() -> None:
    assert parse(state()).cluster == {}
    nodes = {"lb2": "10.0.2.6", "lb1": "10.0.2.2"}
    assert parse(state(cluster=nodes)).cluster == {name: ip_address(address) for name, address in nodes.items()}


def test_the_same_address_may_have_vips_of_other_protocols_and_ports() -> None:
    vips = [WWW, {**WWW, "name": "b", "port": 0}, {**WWW, "name": "c", "protocol": "udp"}]
    assert len(parse(state(vips=vips)).vips) == 3


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (state(version=2), "version 2 is not 1"),
        (state(version=None), "version None"),
        (state(backends={"web1": "10.0.3"}), "not a state message"),
        (state(backends={"web1": None}), "not a state message"),
        (state(backends=[]), "not a state message"),
        (state(vips=None), "not a state message"),
        (state(vips=[None]), "not a state message"),
        (state(vips=[{}]), "not a state message"),
        (with_vip(name=80), "the name 80 of a vip is not text"),
        (with_vip(name=None), "the name None of a vip is not text"),
        (with_vip(name=[]), "the name [] of a vip is not text"),
        (with_vip(name="half \ud800 a pair"), "not a state message"),
        (state(backends={"half \ud800 a pair": "10.0.3.2"}), "not a state message"),
        (state(cluster={"half \ud800 a pair": "10.0.2.2"}), "not a state message"),
        (with_vip(protocol="icmp"), "vip www: protocol 'icmp' is not known"),
        (with_vip(protocol=[]), "not a state message"),
        (with_vip(scheduler="sticky"), "vip www: scheduler 'sticky' is not known"),
        (with_vip(scheduler="bounded-maglev"), "vip www: scheduler 'bounded-maglev' is not known"),
        (with_vip(scheduler=7), "vip www: scheduler 7 is not known"),
        (with_vip(scheduler=["ring"]), "vip www: scheduler ['ring'] is not known"),
        (with_vip(affinity="server"), "vip www: affinity 'server' is not known"),
        (with_vip(affinity=None), "vip www: affinity None is not known"),
        (with_vip(load_bound=1), "vip www: load_bound 1 is not a number from 1.01 to 10"),
        (with_vip(load_bound=10.5), "vip www: load_bound 10.5 is not a number from 1.01 to 10"),
        (with_vip(load_bound=float("nan")), "load_bound nan is not a number from"),
        (with_vip(load_bound=float("inf")), "load_bound inf is not a number from"),
        (with_vip(load_bound=True), "load_bound True is not a number from"),
        (with_vip(load_bound="1.25"), "load_bound '1.25' is not a number from"),
        (with_vip(load_bound=1.25, protocol="udp"), "vip www: load_bound is for protocol tcp with affinity flow"),
        (with_vip(load_bound=1.25, affinity="client"), "load_bound is for protocol tcp with affinity flow"),
        (with_vip(table_size=65536), "vip www: table_size 65536 is not a prime"),
        (with_vip(table_size=0), "table_size 0 is not a prime"),
        (with_vip(table_size=-7), "table_size -7 is not a prime"),
        (with_vip(table_size="65537"), "not a state message"),
        (with_vip(table_size=None), "not a state message"),
        (with_vip(port=-1), "vip www: port -1 is out of range"),
        (with_vip(port=65536), "vip www: port 65536 is out of range"),
        (with_vip(port="80"), "not a state message"),
        (with_vip(address="192.0.2.256"), "not a state message"),
        (with_vip(address=None), "not a state message"),
        (with_vip(members=[["web9", 1, "up"]]), "vip www: member web9 is not among the backends"),
        (with_vip(members=[["web1", 1, "sick"]]), "member web1 has status 'sick'; known: up, drain, down"),
        (with_vip(members=[["web1", -1, "up"]]), "member web1 has weight -1"),
        (with_vip(members=[["web1", 1 << 32, "up"]]), "member web1 has weight 4294967296"),
        (with_vip(members=[["web1", 1.5, "up"]]), "member web1 has weight 1.5"),
        (with_vip(members=[["web1", "1", "up"]]), "member web1 has weight '1'"),
        (with_vip(members=[["web1", None, "up"]]), "member web1 has weight None"),
        (with_vip(members=[["web1", 1, "up"], ["web1", 2, "up"]]), "vip www: a member is named twice"),
        (with_vip(members=[["web1", 1]]), "not a state message"),
        (with_vip(members=[["web1", 1, "up", 0]]), "not a state message"),
        (with_vip(members=[None]), "not a state message"),
        (with_vip(members={"web1": 1}), "not a state message"),
        (state(vips=[WWW, {**WWW, "name": "other"}]), "two vips"),
        (state(vips=[WWW, {**DNS, "name": "www"}]), "two vips"),
        (state(cluster=None), "not a state message"),
        (state(cluster=["lb1"]), "not a state message"),
        (state(cluster={"lb1": "lb1"}), "not a state message"),
        (state(cluster={"lb1": None}), "not a state message"),
        (state(cluster={"lb1": "10.0.2.2", "lb2": "fd00:2::6"}), "addresses of two families"),
        (state(cluster={"lb1": "10.0.2.2", "lb2": "10.0.2.2"}), "two nodes of the cluster have the same address"),
        (None, "not a state message"),
        ([], "not a state message"),
        ("state", "not a state message"),
        (1, "not a state message"),
        ({}, "not a state message"),
    ],
)
def test_what_is_no_state_is_refused_and_says_why(message: Any, words: str) -> None:
    with pytest.raises(StateRefused) as refused:
        parse(message)
    assert words in str(refused.value)


@pytest.mark.parametrize("key", ["version", "backends", "vips"])
def test_every_key_of_the_message_is_required(key: str) -> None:
    message = state()
    del message[key]
    with pytest.raises(StateRefused, match=key):
        parse(message)


@pytest.mark.parametrize("key", sorted(WWW))
def test_every_key_of_a_vip_is_required(key: str) -> None:
    vip = {name: value for name, value in WWW.items() if name != key}
    with pytest.raises(StateRefused, match=key):
        parse(state(vips=[vip]))


def test_a_huge_prime_is_refused_without_looking_for_its_factors() -> None:
    started = time.monotonic()
    with pytest.raises(StateRefused, match="is not a prime of at most"):
        parse(with_vip(table_size=2**61 - 1))
    assert time.monotonic() - started < 1


def test_one_address_written_in_two_ways_is_one_vip() -> None:
    other = {**DNS, "name": "other", "address": "2001:DB8:0:0::1"}
    with pytest.raises(StateRefused, match="two vips"):
        parse(state(vips=[DNS, other]))
