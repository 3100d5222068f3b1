"""Hashes and tables: C against pure Python against an implementation that is not ours, laws, and golden vectors.

The golden values here are for ever: nodes of different versions stand behind one router. Changing one is a breaking
change.
"""

import hashlib
import random
from array import array
from collections import Counter
from ipaddress import ip_address
from typing import Any

import pytest
import siphash24
from hypothesis import given, settings
from hypothesis import strategies as st

from forwarder import _hashing
from forwarder.hashing import digest, flow, primes, slot_table, twin
from forwarder.hashing.quotas import quotas

KEY = bytes(range(16))
SIZES = st.sampled_from([2, 3, 5, 7, 11, 101, 251, 509])
NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
WEIGHTS = st.one_of(st.integers(0, 5), st.integers(0, 1_000_000))
CONFIGURATIONS = st.dictionaries(NAMES, WEIGHTS, max_size=12)
law = settings(deadline=None, max_examples=150)


def reference(rounds: str, key: bytes, data: bytes) -> int:
    hasher = {"1-3": siphash24.siphash13, "2-4": siphash24.siphash24}[rounds]
    return int.from_bytes(hasher(data, key=key).digest(), "little")


def owners(table: slot_table.Table) -> list[str]:
    return [table.names[position] for position in table.slots]


# -- hashes -------------------------------------------------------------------------------------------------------


@law
@given(st.binary(min_size=16, max_size=16), st.binary(max_size=80))
def test_the_twin_of_siphash_agrees_with_the_reference(key: bytes, data: bytes) -> None:
    assert twin.siphash(1, 3, key, data) == reference("1-3", key, data)
    assert twin.siphash(2, 4, key, data) == reference("2-4", key, data)


@pytest.mark.parametrize(
    ("length", "vector"), [(0, "310e0edd47db6f72"), (15, "e545be4961ca29a1"), (63, "724506eb4c328a95")]
)
def test_the_twin_gives_the_vectors_of_siphash_s_authors(length: int, vector: str) -> None:
    assert twin.siphash(2, 4, KEY, bytes(range(length))).to_bytes(8, "little").hex() == vector


PORTS = st.integers(0, 65535)
TUPLES = st.one_of(
    st.tuples(st.binary(min_size=n, max_size=n), st.binary(min_size=n, max_size=n), PORTS, PORTS, st.integers(0, 255))
    for n in (4, 16)
)


@law
@given(st.binary(min_size=16, max_size=16), TUPLES)
def test_flow_hashes_of_c_and_twin_and_reference_agree(key: bytes, five: tuple[bytes, bytes, int, int, int]) -> None:
    source, destination, source_port, destination_port, protocol = five
    ports = source_port.to_bytes(2, "big") + destination_port.to_bytes(2, "big")
    expected = reference("1-3", key, source + destination + ports + bytes([protocol]))
    assert flow.flow_hash(key, *five) == twin.flow_hash(key, *five) == expected
    assert flow.slot_hash(key, *five, "flow") == expected
    of_client = reference("1-3", key, source + destination + bytes([protocol]))
    assert flow.slot_hash(key, *five, "client") == twin.client_hash(key, source, destination, protocol) == of_client


GOLDEN_FLOWS = [
    ("198.51.100.7", "192.0.2.1", (40000, 80), 6, 0xB68D8B8B8E177B9C, 0x38494F91897EA254),
    ("198.51.100.7", "192.0.2.1", (40000, 53), 17, 0xF750A33375A4AD55, 0x3DA5D8F42D280341),
    ("2001:db8:1::7", "2001:db8::1", (40000, 80), 6, 0x54CAFCBB8BE1507B, 0xE4DC10DC0E7E3CB5),
    ("2001:db8:1::7", "2001:db8::1", (65535, 65535), 17, 0xCE4FF36E226AE360, 0x41D9E0D069A20F3B),
]


@pytest.mark.parametrize(("source", "destination", "ports", "protocol", "hashed", "of_client"), GOLDEN_FLOWS)
def test_golden_flow_hashes(
    source: str, destination: str, ports: tuple[int, int], protocol: int, hashed: int, of_client: int
) -> None:
    five = (ip_address(source).packed, ip_address(destination).packed, *ports, protocol)
    assert flow.flow_hash(KEY, *five) == hashed
    assert flow.slot_hash(KEY, *five, "client") == of_client


@pytest.mark.parametrize(
    ("key", "source", "destination"),
    [
        (KEY[:15], bytes(4), bytes(4)),
        (KEY + b"x", bytes(4), bytes(4)),
        (b"", bytes(4), bytes(4)),
        (KEY, bytes(4), bytes(16)),
        (KEY, bytes(16), bytes(4)),
        (KEY, b"", b""),
        (KEY, bytes(5), bytes(5)),
        (KEY, bytes(17), bytes(17)),
    ],
)
def test_keys_and_addresses_of_wrong_length_are_refused(key: bytes, source: bytes, destination: bytes) -> None:
    for affinity in ("flow", "client"):
        with pytest.raises(ValueError, match="bytes"):
            flow.slot_hash(key, source, destination, 1, 2, 6, affinity)


@pytest.mark.parametrize(("ports", "protocol"), [((65536, 0), 6), ((0, -1), 6), ((1, 2), 256)])
def test_ports_and_protocols_out_of_range_are_refused(ports: tuple[int, int], protocol: int) -> None:
    with pytest.raises(OverflowError):
        flow.flow_hash(KEY, bytes(4), bytes(4), *ports, protocol)


# -- tables: twins ------------------------------------------------------------------------------------------------


@law
@given(NAMES, SIZES)
def test_permutations_of_c_and_twin_and_reference_agree(name: str, size: int) -> None:
    encoded = name.encode()
    offset = reference("2-4", 0xDEADBABE.to_bytes(16, "little"), encoded) % size
    skip = reference("2-4", 0xDEADBEEF.to_bytes(16, "little"), encoded) % (size - 1) + 1
    assert _hashing.permutation(encoded, size) == twin.permutation(name, size) == (offset, skip)


@law
@given(CONFIGURATIONS, SIZES)
def test_tables_of_c_and_twin_agree(weights: dict[str, int], size: int) -> None:
    # The twin plays every round by itself, so that weights far apart would keep it busy for minutes.
    largest = max(weights.values(), default=0)
    weights = {name: weight for name, weight in weights.items() if weight == 0 or weight * 30 >= largest}
    table = slot_table.build(weights, size)
    if not any(weights.values()):
        assert (table.names, len(table.slots)) == ((), 0)
    else:
        assert owners(table) == twin.table(weights, size)


def test_tables_agree_at_the_usual_size() -> None:
    weights = {f"web{i}": 1 + i % 7 for i in range(50)}
    assert owners(slot_table.build(weights, 65537)) == twin.table(weights, 65537)


def test_small_weights_beside_a_large_one_take_the_turns_they_would_have_waited_for() -> None:
    weights = {"big": 20_000, "small1": 90, "small2": 91, "tiny": 45}
    assert owners(slot_table.build(weights, 251)) == twin.table(weights, 251)


PAPER = {"B0": (3, 4), "B1": (0, 2), "B2": (3, 1)}


@pytest.mark.parametrize(
    ("names", "expected"),
    [(["B0", "B1", "B2"], "B1 B0 B1 B0 B2 B2 B0"), (["B0", "B2"], "B0 B0 B0 B0 B2 B2 B2")],
)
def test_the_example_of_the_paper(names: list[str], expected: str) -> None:
    preferred = {name: twin.preferences(*PAPER[name], 7) for name in names}
    assert twin.populate(dict.fromkeys(names, 1), preferred, 7) == expected.split()
    slots = _hashing.populate([PAPER[n][0] for n in names], [PAPER[n][1] for n in names], [1] * len(names), 7)
    assert [names[position] for position in slots] == expected.split()


# -- tables: laws -------------------------------------------------------------------------------------------------


@law
@given(CONFIGURATIONS, SIZES)
def test_slots_equal_quotas(weights: dict[str, int], size: int) -> None:
    counts = slot_table.build(weights, size).counts()
    total = sum(weights.values())
    names = sorted((name for name, weight in weights.items() if weight > 0), key=str.encode)
    exact = quotas([weights[name] for name in names], size) if names else []
    assert counts == dict(zip(names, exact, strict=True))
    for name, count in counts.items():
        assert size * weights[name] // total <= count <= size * weights[name] // total + 1
    assert sum(counts.values()) == (size if total else 0)


@law
@given(st.sets(NAMES, min_size=1, max_size=30), SIZES, st.integers(1, 1000))
def test_equal_weights_differ_by_at_most_one_slot(names: set[str], size: int, weight: int) -> None:
    table = slot_table.build(dict.fromkeys(names, weight), size)
    counts = table.counts().values()
    assert max(counts) - min(counts) <= 1
    assert table.slots == slot_table.build(dict.fromkeys(names, 1), size).slots


@law
@given(CONFIGURATIONS, SIZES, st.randoms(use_true_random=False))
def test_a_table_is_a_function_of_the_set(weights: dict[str, int], size: int, shuffler: random.Random) -> None:
    items = list(weights.items())
    shuffler.shuffle(items)
    one, other = slot_table.build(weights, size), slot_table.build(dict(items), size)
    assert one == other
    assert one.digest == other.digest
    without = {name: weight for name, weight in weights.items() if weight > 0}
    assert slot_table.build(without, size) == one


def test_a_hundred_backends_in_any_order_and_by_any_history_make_one_table() -> None:
    weights = {f"web{i}": 100 for i in range(100)}
    expected = slot_table.build(weights, 65537)
    shuffler = random.Random(1)
    for _ in range(20):
        items = list(weights.items())
        shuffler.shuffle(items)
        assert slot_table.build(dict(items), 65537).digest == expected.digest
    for _ in range(20):
        known = dict(items[: shuffler.randrange(100)])
        for step in range(100):
            name = shuffler.choice(list(weights))
            if known.pop(name, None) is None:
                known[name] = shuffler.choice([1, 100])
            if step % 25 == 0:
                slot_table.build(known, 65537)
        for name in shuffler.sample(list(weights), 100):
            known[name] = 100
        assert slot_table.build(known, 65537).digest == expected.digest


def test_one_of_a_hundred_removed_moves_little_and_put_back_restores_exactly() -> None:
    weights = {f"web{i}": 100 for i in range(100)}
    before = slot_table.build(weights, 65537)
    for gone in ("web0", "web42", "web99"):
        left = {name: weight for name, weight in weights.items() if name != gone}
        after = slot_table.build(left, 65537)
        moved = sum(a != b for a, b in zip(owners(before), owners(after), strict=True))
        assert before.counts()[gone] <= moved <= 0.018 * 65537
        assert slot_table.build({**left, gone: 100}, 65537) == before


def test_weights_one_to_two_at_the_usual_size() -> None:
    assert slot_table.build({"a": 1, "b": 2}, 65537).counts() == {"a": 21846, "b": 43691}
    assert slot_table.build({"a": 50, "b": 100, "c": 0}, 65537).counts() == {"a": 21846, "b": 43691}


def test_members_beyond_the_slots_own_none() -> None:
    counts = slot_table.build({f"{i:02}": 1 for i in range(20)}, 7).counts()
    assert [name for name, count in counts.items() if count] == [f"{i:02}" for i in range(7)]


@pytest.mark.parametrize("size", [65536, 0, 1, 4, -7, 65537 * 3, (1 << 24) + 43])
def test_sizes_that_are_no_prime_in_range_are_refused(size: int) -> None:
    with pytest.raises(ValueError, match="not a prime"):
        slot_table.build({"a": 1}, size)


def test_negative_weights_and_too_many_members_are_refused() -> None:
    with pytest.raises(ValueError, match="negative"):
        slot_table.build({"a": -1}, 7)
    with pytest.raises(ValueError, match="65535 backends"):
        slot_table.build({str(i): 1 for i in range(65535)}, 7)


@pytest.mark.parametrize(("offsets", "skips", "size"), [([7], [1], 7), ([0], [0], 7), ([0], [7], 7), ([0], [1], 1)])
def test_permutations_out_of_range_are_refused(offsets: list[int], skips: list[int], size: int) -> None:
    with pytest.raises(ValueError, match="no Maglev table"):
        _hashing.populate(offsets, skips, [1], size)


def test_primes() -> None:
    found = [number for number in range(-5, 102) if primes.is_prime(number)]
    assert found == [
        2,
        3,
        5,
        7,
        11,
        13,
        17,
        19,
        23,
        29,
        31,
        37,
        41,
        43,
        47,
        53,
        59,
        61,
        67,
        71,
        73,
        79,
        83,
        89,
        97,
        101,
    ]
    assert primes.is_prime(65537)
    assert not primes.is_prime(65537**2)
    assert [primes.next_prime(n) for n in (-1, 0, 2, 8, 65536, 65538)] == [2, 2, 2, 11, 65537, 65539]


# -- digests ------------------------------------------------------------------------------------------------------

GOLDEN_TABLES = [
    ({"a": 1, "b": 1, "c": 1}, 7, "1b7224e605f14906b4aab3419b39f689f530369ab95af30f2867e1693eccf06d"),
    (
        {"web1": 100, "web2": 100, "web3": 100},
        65537,
        "4043563689d5de394993a69ada38fc0aab6dfaf35e780795b204611a1aec685b",
    ),
    ({"web1": 100, "web2": 200}, 65537, "bdfef0d5703c056af1d153fadf1e5c70eeb762e7b3b2fbe1b890376f88504ab3"),
    (
        {f"backend-{i}": 1 for i in range(100)},
        65537,
        "e753b8546b37456cf33e6c5a562e2edd74063e61c7f723d15dbf8b0b2db99172",
    ),
    ({"å": 3, "b": 2, "Z": 0, "日本": 1}, 251, "d5298d375ef96c9ca15185945024d67f2d375248d58eed6aad84e824dd9ec1d9"),
]


@pytest.mark.parametrize(("weights", "size", "expected"), GOLDEN_TABLES)
def test_golden_tables(weights: dict[str, int], size: int, expected: str) -> None:
    assert slot_table.build(weights, size).digest == expected


def test_a_table_s_digest_is_over_size_names_and_slots() -> None:
    table = slot_table._table(("a", "b"), 3, array("H", [0, 1, 0]))
    assert table.digest == hashlib.sha256(b"3\0a\0b\0" + bytes([0, 0, 1, 0, 0, 0])).hexdigest()
    others = [
        slot_table._table(("a", "b"), 5, table.slots),
        slot_table._table(("a", "c"), 3, table.slots),
        slot_table._table(("a", "b"), 3, array("H", [0, 1, 1])),
        slot_table._table((), 3, array("H")),
    ]
    assert len({table.digest, *(other.digest for other in others)}) == 5


def state() -> dict[str, Any]:
    return {
        "version": 1,
        "backends": {"web1": "10.0.3.2", "web2": "10.0.4.2", "web3": "10.0.5.2", "dns1": "fd00::53"},
        "vips": [
            {
                "name": "www",
                "address": "192.0.2.1",
                "protocol": "tcp",
                "port": 80,
                "scheduler": "maglev",
                "affinity": "flow",
                "table_size": 251,
                "members": [["web1", 100, "up"], ["web2", 50, "drain"], ["web3", 100, "up"]],
            },
            {
                "name": "dns",
                "address": "2001:db8::1",
                "protocol": "udp",
                "port": 0,
                "scheduler": "maglev",
                "affinity": "client",
                "table_size": 7,
                "members": [["dns1", 1, "down"]],
            },
        ],
    }


def test_the_golden_digest_of_a_state() -> None:
    assert digest.state_digest(state()) == "11855a54b0edab33ce1140016df555207c608f0cf3ece77f229b5f8cca17f99b"


def test_the_golden_digest_of_a_state_with_a_cluster_in_any_order() -> None:
    for names in (("lb1", "lb2"), ("lb2", "lb1")):
        cluster = {name: {"lb1": "10.0.2.2", "lb2": "10.0.2.6"}[name] for name in names}
        told = digest.state_digest({**state(), "cluster": cluster})
        assert told == "e176d7ce635b1b61fe1e1c13ed4d9da87989278f8004f50006ba791fa93676f4"


def test_the_golden_digest_of_a_state_with_a_load_bound() -> None:
    for bound in (2, 2.0):
        bounded = state()
        bounded["vips"][0]["load_bound"] = bound
        assert digest.state_digest(bounded) == "bf17ca11f47ecff8e9623ddbd7d017af648c2b8c32e0dec3da3e9a5354ce5042"
    bounded["vips"][0]["load_bound"] = None
    assert digest.state_digest(bounded) == digest.state_digest(state()), "none is as before there were any"


@pytest.mark.parametrize("cluster", [{"lb1": "10.0.2.2", "lb2": "10.0.2.7"}, {"lb1": "10.0.2.2", "lb3": "10.0.2.6"}])
def test_the_cluster_is_in_the_digest_and_none_is_as_before(cluster: dict[str, str]) -> None:
    known = {digest.state_digest({**state(), "cluster": {"lb1": "10.0.2.2", "lb2": "10.0.2.6"}})}
    assert digest.state_digest({**state(), "cluster": cluster}) not in known
    assert digest.state_digest({**state(), "cluster": {}}) == digest.state_digest(state())


def test_a_state_s_digest_does_not_depend_on_order() -> None:
    expected = digest.state_digest(state())
    shuffler = random.Random(2)
    for _ in range(20):
        shuffled = state()
        backends = list(shuffled["backends"].items())
        shuffler.shuffle(backends)
        shuffled["backends"] = dict(backends)
        shuffler.shuffle(shuffled["vips"])
        for vip in shuffled["vips"]:
            shuffler.shuffle(vip["members"])
        assert digest.state_digest(shuffled) == expected


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("name", "web"),
        ("address", "192.0.2.2"),
        ("protocol", "udp"),
        ("port", 81),
        ("affinity", "client"),
        ("scheduler", "rendezvous"),
        ("table_size", 257),
        ("load_bound", 1.25),
        ("members", [["web1", 100, "up"], ["web2", 50, "drain"]]),
        ("members", [["web1", 100, "up"], ["web2", 50, "down"], ["web3", 100, "up"]]),
        ("members", [["web1", 100, "up"], ["web2", 50, "up"], ["web3", 100, "up"]]),
        ("members", [["web1", 200, "up"], ["web2", 50, "drain"], ["web3", 200, "up"]]),
    ],
)
def test_whatever_treats_a_packet_differently_changes_the_digest(key: str, value: object) -> None:
    changed = state()
    changed["vips"][0][key] = value
    assert digest.state_digest(changed) != digest.state_digest(state())


def test_the_address_of_a_member_is_in_the_digest_and_of_others_is_not() -> None:
    moved, spare = state(), state()
    moved["backends"]["web2"] = "10.0.4.3"
    spare["backends"]["spare"] = "10.0.9.9"
    assert digest.state_digest(moved) != digest.state_digest(state())
    assert digest.state_digest(spare) == digest.state_digest(state())


def test_every_scheduler_has_a_digest_of_its_own() -> None:
    """Also one whose table happens to be another's: its next one need not be."""
    seen = set()
    for scheduler in slot_table.SCHEDULERS:
        changed = state()
        changed["vips"][0]["scheduler"] = scheduler
        changed["vips"][0]["members"] = [["web1", 1, "up"]]
        seen.add(digest.state_digest(changed))
    assert len(seen) == len(slot_table.SCHEDULERS)


def test_one_digest_asks_for_each_vip_s_table_once() -> None:
    asked: Counter[int] = Counter()

    def build(weights: Any, size: int, scheduler: str) -> slot_table.Table:
        asked[size] += 1
        return slot_table.build(weights, size, scheduler)

    assert digest.state_digest(state(), build) == digest.state_digest(state())
    assert asked == {251: 1, 7: 1}
