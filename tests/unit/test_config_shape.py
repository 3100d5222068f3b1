"""Mistakes in the YAML and in the shape of the file: unknown, missing, doubled keys and wrong structure."""

import pytest
from config_text import GOOD, Row, assert_refused

PORT = "    port: 80\n"
SPARE = "      - {name: web3, address: 10.0.5.2}\n"
HASH_KEY = '"000102030405060708090a0b0c0d0e0f"'

SHAPE = [
    Row("a misspelt key", "drain_time: 10s", "drain_tme: 10s", "node.drain_tme", "write drain_time"),
    Row("a misspelt section", "backend_pools:", "backend_pool:", "backend_pool", "write backend_pools"),
    Row("a key that is like none", "idle: sleep", "idle: sleep\n  zz: 1", "forwarder.zz", "not a key here"),
    Row(
        "a key of a later version in a vip",
        PORT,
        PORT + "    shard: 1\n",
        "vips[0].shard",
        "not built yet; leave it out",
        "shard",
    ),
    Row("no node", GOOD[: GOOD.index("forwarder:")], "", "node", "is missing; write node:", "forwarder:"),
    Row("no node name", "  name: lb1\n", "", "node.name", "is missing; write name: lb1", "node:"),
    Row("no hash key", f"  hash_key: {HASH_KEY}\n", "", "node.hash_key", "is missing", "node:"),
    Row(
        "no vip address",
        "    address: 192.0.2.1\n",
        "",
        "vips[0].address",
        "is missing; write address: 192.0.2.1",
        "name: www",
    ),
    Row("no vip port", PORT, "", "vips[0].port", "is missing", "name: www"),
    Row(
        "an empty section",
        "lcores: {steering: 0, workers: [1], muxing: 0}",
        "lcores:",
        "forwarder.lcores",
        "is empty; write a mapping with keys of steering, workers, muxing",
    ),
    Row(
        "text for a section",
        "next_hop: {ipv4: 10.0.2.2}",
        "next_hop: 10.0.2.2",
        "bgp.next_hop",
        "write a mapping",
    ),
    Row(
        "a list for named things",
        GOOD[GOOD.index("health_checks:") : GOOD.index("backend_pools:")],
        "health_checks: []\n",
        "health_checks",
        "is a list; write a mapping",
    ),
    Row("one thing for a list", "[web-http]", "web-http", "backend_pools.web.health_checks", "write a list"),
    Row(
        "a bare name for a backend",
        SPARE,
        "      - web3\n",
        "backend_pools.spare.backends[0]",
        "keys of name, address, weight, drain",
        "- web3",
    ),
    Row(
        "more keys beside a pool",
        "{pool: spare}",
        "{pool: spare, weight: 1}",
        "backend_pools.web.backends[2].weight",
        "not a key here; write pool",
    ),
    Row(
        "an empty list of workers",
        "workers: [1]",
        "workers: []",
        "forwarder.lcores.workers",
        "write at least 1",
    ),
    Row("a vip without pools", "pools: [web]", "pools: []", "vips[0].pools", "write at least 1"),
]

YAML = [
    Row(
        "a key twice",
        "  web:\n",
        "  web: {backends: []}\n  web:\n",
        "backend_pools.web",
        "is given twice, first on line 32; write it once",
        "  web:\n    health",
    ),
    Row(
        "backends twice in a pool",
        "    backends:\n      - {name: web3",
        "    backends: []\n    backends:\n      - {name: web3",
        "backend_pools.spare.backends",
        "is given twice",
        "    backends:\n      - {name: web3",
    ),
    Row(
        "a key twice in a flow mapping",
        "rise: 2",
        "rise: 2, rise: 2",
        "health_checks.tcp-open.rise",
        "given twice",
    ),
    Row("a tag", "name: lb1", "name: !!str lb1", "node.name", "has the tag !!str;"),
    Row("a tag of Python's", "name: lb1", "name: !!python/name:os.system lb1", "node.name", "without a tag"),
    Row(
        "a number as a key",
        "  spare:\n",
        "  80: {}\n  spare:\n",
        "backend_pools.80",
        "write the key in quotes",
        "  80:",
    ),
    Row(
        "a list as a key",
        "  spare:\n",
        "  ? [a]\n  : {}\n  spare:\n",
        "backend_pools.?",
        "is not text",
        "  ? [a]",
    ),
    Row(
        "a merge key",
        "    - device: eth1\n",
        "    - device: eth1\n      <<: {mtu: 1500}\n",
        "forwarder.ports[0].<<",
        "write the keys out",
        "<<",
    ),
    Row("a second document", "vips:\n", "vips: []\n---\nvips:\n", "", "one document in one file", "---"),
    Row("an unknown alias", "name: lb1", "name: *nobody", "node.name", "*nobody"),
    Row("an alias into itself", "workers: [1]", "workers: &a [*a]", "forwarder.lcores.workers[0]", "*a"),
    Row("a bracket that is left open", "workers: [1], muxing", "workers: [1, muxing", "", "is not YAML"),
    Row("a tab for an indent", "  name: lb1", "\tname: lb1", "", "is not YAML"),
]


@pytest.mark.parametrize("row", SHAPE + YAML, ids=lambda row: row.what)
def test_a_file_of_wrong_shape_is_refused_with_line_key_and_what_to_write(row: Row) -> None:
    assert_refused(row)
