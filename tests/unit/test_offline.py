import pytest
from config_text import GOOD, edited

from controller import offline
from controller.config import loads
from forwarder.hashing import flow, slot_table

SERVED = loads(GOOD)
ALL_DRAIN = loads(
    GOOD.replace("web1, address: 10.0.3.2, weight: 100", "web1, address: 10.0.3.2, weight: 0").replace(
        "{name: web3, address: 10.0.5.2}", "{name: web3, address: 10.0.5.2, drain: true}"
    )
)


def test_check_tells_what_would_be_served() -> None:
    told = offline.check(SERVED)
    assert told["announced"] == ["192.0.2.1"]
    assert told["probes"] == 3
    (vip,) = told["vips"]
    assert (vip["name"], vip["address"], vip["protocol"], vip["port"]) == ("www", "192.0.2.1", "tcp", 80)
    assert [(m["name"], m["weight"], m["status"], m["checks"]) for m in vip["members"]] == [
        ("web1", 100, "up", ["web-http"]),
        ("web2", 100, "drain", ["web-http"]),
        ("web3", 100, "up", ["tcp-open"]),
    ]


def test_check_tells_the_cluster_this_node_included() -> None:
    assert offline.check(SERVED)["cluster"] == {}
    told = offline.check(loads(GOOD + "cluster: {nodes: [{name: lb2, address: 10.0.2.6}]}\n"))["cluster"]
    assert list(told.items()) == [("lb1", "10.0.2.2"), ("lb2", "10.0.2.6")]


def test_replay_gets_the_cluster_in_its_state() -> None:
    config = loads(GOOD + "cluster: {nodes: [{name: lb2, address: 10.0.2.6}]}\n")
    assert offline.replay_request(config)["state"]["cluster"] == {"lb1": "10.0.2.2", "lb2": "10.0.2.6"}
    assert "cluster" not in offline.replay_request(SERVED)["state"]


def test_check_announces_nothing_without_a_speaker_or_a_healthy_backend() -> None:
    assert offline.check(loads(edited("speaker: exabgp", "speaker: none")))["announced"] == []
    assert offline.check(ALL_DRAIN)["announced"] == []


def test_table_gives_draining_backends_no_slot() -> None:
    table = offline.table(SERVED, "www")
    assert (table["vip"], table["size"], len(table["slots"])) == ("www", 65537, 65537)
    assert table["backends"] == {"web1": 32769, "web2": 0, "web3": 32768}
    assert {name: table["slots"].count(name) for name in table["backends"]} == table["backends"]


def test_table_of_a_vip_with_nobody_to_serve_it_is_empty() -> None:
    table = offline.table(ALL_DRAIN, "www")
    assert table["slots"] == []
    assert table["backends"] == {"web1": 0, "web2": 0, "web3": 0}


def test_table_of_an_unknown_vip_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="there is no vip ww; write www"):
        offline.table(SERVED, "ww")


def look_up(config=SERVED, protocol="tcp", source="198.51.100.7", to="192.0.2.1", port=80):  # type: ignore[no-untyped-def]
    return offline.lookup(config, protocol, source, 40000, to, port)


def test_lookup_goes_by_the_table() -> None:
    told = look_up()
    assert (told["vip"], told["source"], told["fate"]) == ("www", "table", "hash_new")
    assert told["slot"] == (int(told["hash"], 16) >> 32) % 65537
    assert told["backend"] == offline.table(SERVED, "www")["slots"][told["slot"]]


def test_lookup_with_affinity_of_the_client_leaves_ports_out_of_the_slot_only() -> None:
    config = loads(edited("affinity: flow", "affinity: client"))
    one, other = (offline.lookup(config, "tcp", "198.51.100.7", p, "192.0.2.1", 80) for p in (1, 2))
    assert one["slot"] == other["slot"]
    assert one["hash"] != other["hash"]
    hashed = flow.slot_hash(bytes(range(16)), b"\xc6\x33\x64\x07", b"\xc0\x00\x02\x01", 1, 80, 6, "client")
    assert one["slot"] == (hashed >> 32) % 65537


@pytest.mark.parametrize("scheduler", slot_table.SCHEDULERS)
def test_every_answer_is_by_the_scheduler_of_the_vip(scheduler: str) -> None:
    config = loads(edited("scheduler: maglev", f"scheduler: {scheduler}"))
    assert offline.check(config)["vips"][0]["scheduler"] == scheduler
    assert offline.replay_request(config)["state"]["vips"][0]["scheduler"] == scheduler
    built = slot_table.build({"web1": 100, "web3": 100}, 65537, scheduler)
    table = offline.table(config, "www")
    assert (table["digest"], table["backends"]) == (built.digest, {"web2": 0} | built.counts())
    assert table["slots"] == [built.names[position] for position in built.slots]
    for port in range(1024, 1034):
        told = offline.lookup(config, "tcp", "198.51.100.7", port, "192.0.2.1", 80)
        assert (told["backend"], told["fate"]) == (table["slots"][told["slot"]], "hash_new")


@pytest.mark.parametrize(
    "other", [{"protocol": "udp"}, {"port": 81}, {"to": "192.0.2.2"}, {"source": "::1", "to": "2001:db8::1"}]
)
def test_lookup_of_what_is_not_served_is_not_vip(other: dict[str, object]) -> None:
    told = look_up(**other)
    assert told["fate"] == "not_vip"
    assert told["vip"] is told["slot"] is told["backend"] is None


def test_lookup_without_anybody_to_serve_is_no_backend() -> None:
    told = look_up(ALL_DRAIN)
    assert (told["vip"], told["slot"], told["backend"], told["fate"]) == ("www", None, None, "no_backend")


def test_lookup_prefers_the_port_itself_to_any() -> None:
    config = loads(GOOD + "  - {name: rest, address: 192.0.2.1, port: any, pools: [web]}\n")
    assert [look_up(config, port=port)["vip"] for port in (80, 81, 0)] == ["www", "rest", "rest"]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"protocol": "icmp"}, "write tcp or udp"),
        ({"source": "client"}, "client is not an address"),
        ({"to": "2001:db8::1"}, "are of two families"),
        ({"port": 65536}, "port 65536 is out of range"),
    ],
)
def test_lookup_refuses_what_is_no_flow(wrong: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        look_up(**wrong)
