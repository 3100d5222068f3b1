"""The cluster section: what it may say, what it may not, and what all nodes make of it alike."""

import pytest
from config_text import GOOD, Row, assert_refused, edited

from controller.changes import changes, restart_needed
from controller.config import Config, loads
from controller.reconcile import desired_state
from forwarder.hashing.digest import state_digest

BGP = "bgp:\n  speaker: exabgp\n"
LB1, LB2, LB3 = (f"{{name: lb{n}, address: 10.0.2.{last}}}" for n, last in ((1, 2), (2, 6), (3, 8)))
NODES = {"lb1": "10.0.2.2", "lb2": "10.0.2.6"}


def section(*nodes: str) -> str:
    return "cluster:\n  nodes:\n" + "".join(f"    - {node}\n" for node in nodes)


def with_nodes(*nodes: str) -> str:
    return edited(BGP, section(*nodes) + BGP)


def nodes_of(text: str) -> dict[str, str]:
    return {name: str(address) for name, address in loads(text).cluster_nodes().items()}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (GOOD, {}),
        (edited(BGP, "cluster: {}\n" + BGP), {}),
        (edited(BGP, "cluster: {nodes: []}\n" + BGP), {}),
        (with_nodes(LB1), {}),
        (with_nodes(LB2), NODES),
        (with_nodes(LB1, LB2), NODES),
        (with_nodes(LB2, LB1), NODES),
        (with_nodes(LB2, LB1, LB3), {**NODES, "lb3": "10.0.2.8"}),
        (with_nodes("{name: lb2, address: 'fd00:2:0::6'}"), {"lb1": "fd00:2::2", "lb2": "fd00:2::6"}),
    ],
    ids=[
        "no section",
        "an empty section",
        "no nodes",
        "this node alone",
        "the other node",
        "both",
        "both, in another order",
        "three",
        "in IPv6",
    ],
)
def test_this_node_is_one_of_them_whether_it_is_listed_or_not(text: str, expected: dict[str, str]) -> None:
    assert nodes_of(text) == expected


def test_sixty_four_may_be_listed() -> None:
    others = (f"{{name: n{i}, address: 10.1.0.{i}}}" for i in range(1, 65))
    assert len(nodes_of(with_nodes(*others))) == 65


def wrong(
    what: str, nodes: list[str], key: str, words: str, at: str = "", also: tuple[tuple[str, str], ...] = ()
) -> Row:
    """A list of nodes with one mistake, named at the text `at` (the last node)."""
    return Row(what, BGP, section(*nodes) + BGP, key, words, at or nodes[-1], also)


RULES = [
    wrong(
        "a name twice",
        [LB2, "{name: lb2, address: 10.0.2.8}"],
        "cluster.nodes[1].name",
        "lb2 is already node 0; write each name once",
    ),
    wrong(
        "an address twice",
        [LB2, "{name: lb3, address: 10.0.2.6}"],
        "cluster.nodes[1].address",
        "10.0.2.6 is already node 0; write each address once",
    ),
    wrong(
        "one address in two spellings",
        ["{name: lb2, address: 'fd00:2::6'}", "{name: lb3, address: 'fd00:2:0:0::6'}"],
        "cluster.nodes[1].address",
        "fd00:2::6 is already node 0",
    ),
    wrong(
        "two families",
        [LB2, "{name: lb3, address: 'fd00:2::6'}"],
        "cluster.nodes[1].address",
        "is of another family than that of lb2; write one of the same",
    ),
    wrong(
        "this node with another address",
        [LB2, "{name: lb1, address: 10.0.2.9}"],
        "cluster.nodes[1].address",
        "this node is lb1 with 10.0.2.2; write both here, or leave this entry out",
    ),
    wrong(
        "another node with this one's address",
        ["{name: lb2, address: 10.0.2.2}"],
        "cluster.nodes[0].address",
        "this node is lb1 with 10.0.2.2",
    ),
    wrong(
        "no tunnel source of the family",
        ["{name: lb2, address: 'fd00:2::6'}"],
        "cluster.nodes[0].address",
        "needs node.tunnel_source.ipv6 here too; write it, or another address",
        also=((', ipv6: "fd00:2::2"}', "}"),),
    ),
    wrong(
        "a vip",
        ["{name: lb2, address: 192.0.2.1}"],
        "cluster.nodes[0].address",
        "192.0.2.1 is the address of vip www; write the node's tunnel source",
    ),
    wrong(
        "a backend",
        ["{name: lb2, address: 10.0.4.2}"],
        "cluster.nodes[0].address",
        "10.0.4.2 is the address of backend web2; write the node's tunnel source",
    ),
    wrong(
        "multicast", ["{name: lb2, address: 224.0.0.1}"], "cluster.nodes[0].address", "is multicast; write a unicast"
    ),
    wrong(
        "no address", ["{name: lb2, address: lb2}"], "cluster.nodes[0].address", "is no address; write one such as"
    ),
    wrong("no name", ["{name: 'lb 2', address: 10.0.2.6}"], "cluster.nodes[0].name", "is not a name; write letters"),
    wrong("a missing name", ["{address: 10.0.2.6}"], "cluster.nodes[0].name", "is missing; write name: lb2"),
    wrong("a missing address", ["{name: lb2}"], "cluster.nodes[0].address", "is missing; write address: 10.0.2.6"),
    wrong(
        "an unknown key of a node",
        ["{name: lb2, address: 10.0.2.6, weight: 3}"],
        "cluster.nodes[0].weight",
        "is not a key here; write address or name",
    ),
    wrong("a name alone", ["lb2"], "cluster.nodes[0]", "write a mapping with keys of name, address", "- lb2"),
    wrong(
        "sixty-five",
        [f"{{name: n{i}, address: 10.1.0.{i}}}" for i in range(1, 66)],
        "cluster.nodes",
        "has too many entries; write at most 64",
        "nodes:",
    ),
    wrong(
        "an MTU too small for IPv6 between nodes",
        ["{name: lb2, address: 'fd00:2::6'}"],
        "forwarder.ports[0].mtu",
        "1279 is too small for IPv6 as configured; write at least 1280",
        "mtu:",
        (("mtu: 1500", "mtu: 1279"),),
    ),
    wrong(
        "an MTU too small for an IPv6 vip's fragments between nodes over IPv6",
        ["{name: lb2, address: 'fd00:2::6'}"],
        "forwarder.ports[0].mtu",
        "1323 is too small for IPv6 as configured; write at least 1324",
        "mtu:",
        (
            ("mtu: 1500", "mtu: 1323"),
            ("192.0.2.1", '"2001:db8::1"'),
            ("next_hop: {ipv4: 10.0.2.2}", 'next_hop: {ipv6: "fd00:2::2"}'),
        ),
    ),
    Row(
        "an unknown key",
        BGP,
        "cluster: {key: abc}\n" + BGP,
        "cluster.key",
        "is not a key here; write nodes",
        "cluster",
    ),
    Row("nothing", BGP, "cluster:\n" + BGP, "cluster", "is empty; write a mapping with keys of nodes", "cluster"),
    Row("a list", BGP, "cluster: []\n" + BGP, "cluster", "is a list; write a mapping", "cluster"),
    Row("null", BGP, "cluster: {nodes: null}\n" + BGP, "cluster.nodes", "is empty; write a list", "cluster"),
]


@pytest.mark.parametrize("row", RULES, ids=lambda row: row.what)
def test_a_wrong_cluster_is_refused_with_line_key_and_what_to_write(row: Row) -> None:
    assert_refused(row)


# -- what becomes of it


def as_lb2(text: str) -> str:
    """The same file at the other node."""
    return text.replace("name: lb1\n", "name: lb2\n").replace("{ipv4: 10.0.2.2, ipv6", "{ipv4: 10.0.2.6, ipv6")


def state_of(config: Config) -> dict[str, object]:
    return desired_state(config.all_services, {}, (), config.cluster_nodes())


def test_all_nodes_have_one_state_and_digest_however_they_list_themselves() -> None:
    texts = [with_nodes(LB2), with_nodes(LB1, LB2), with_nodes(LB2, LB1)]
    texts += [as_lb2(with_nodes(LB1)), as_lb2(with_nodes(LB1, LB2))]
    states = [state_of(loads(text)) for text in texts]
    assert states[0]["cluster"] == NODES
    assert all(state == states[0] for state in states)
    assert all(list(state["cluster"]) == ["lb1", "lb2"] for state in states)  # type: ignore[call-overload]
    assert len({state_digest(state) for state in states}) == 1
    assert state_digest(states[0]) != state_digest(state_of(loads(GOOD)))


def test_a_node_that_is_alone_has_the_state_that_it_always_had() -> None:
    assert "cluster" not in state_of(loads(GOOD))
    assert state_of(loads(with_nodes(LB1))) == state_of(loads(GOOD))


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (GOOD, with_nodes(LB2), ["cluster node lb1 is added", "cluster node lb2 is added"]),
        (with_nodes(LB2), GOOD, ["cluster node lb1 is removed", "cluster node lb2 is removed"]),
        (with_nodes(LB2), with_nodes(LB2, LB3), ["cluster node lb3 is added"]),
        (with_nodes(LB2), with_nodes("{name: lb2, address: 10.0.2.7}"), ["cluster node lb2 changes"]),
        (with_nodes(LB2), with_nodes(LB2, LB1), []),
        (GOOD, with_nodes(LB1), []),
    ],
)
def test_a_reload_follows_the_cluster_without_a_restart(before: str, after: str, told: list[str]) -> None:
    old, new = loads(before), loads(after)
    assert changes(old, new) == told
    assert restart_needed(old, new) == []
