"""Mistakes in single values: kinds, ranges and words."""

import pytest
from config_text import Row, assert_refused, edited

from controller.config import loads
from forwarder.hashing.slot_table import SCHEDULERS, WITH_HISTORY

PORT = "    port: 80\n"
HASH_KEY = '"000102030405060708090a0b0c0d0e0f"'

VALUES = [
    Row("a number for a name", "name: lb1", "name: 1", "node.name", "write it in quotes"),
    Row("a name with a slash", "name: lb1", "name: a/b", "node.name", '"a/b" is not a name; write letters'),
    Row(
        "a pool name with a space",
        "  spare:\n",
        "  'spa re':\n",
        "backend_pools.spa re",
        "is not a name",
        "spa re':",
    ),
    Row(
        "a short hash key",
        HASH_KEY,
        '"0001"',
        "node.hash_key",
        "is 4 characters; write exactly 32 hex digits",
    ),
    Row(
        "a hash key with a letter g",
        HASH_KEY,
        '"g00102030405060708090a0b0c0d0e0f"',
        "node.hash_key",
        "32 hex digits",
    ),
    Row("a hash key of zeros", HASH_KEY, '"' + "0" * 32 + '"', "node.hash_key", "is all zero; write 32 random"),
    Row("a duration without unit", "drain_time: 10s", "drain_time: 10", "node.drain_time", "as in 10s"),
    Row(
        "a duration in days",
        "drain_time: 10s",
        "drain_time: 1d",
        "node.drain_time",
        "write a number and ms, s, m or h",
    ),
    Row("a negative duration", "drain_time: 10s", "drain_time: -1s", "node.drain_time", "is no duration"),
    Row(
        "a timeout under a second",
        "udp: 60s",
        "udp: 900ms",
        "forwarder.connection_table.udp",
        "from 1s to 24h",
    ),
    Row(
        "a timeout over a day",
        "tcp_established: 2h",
        "tcp_established: 25h",
        "forwarder.connection_table.tcp_established",
        "25h is out of range; write a duration from 1s to 24h",
    ),
    Row("a zero interval", "interval: 1s", "interval: 0s", "health_checks.web-http.interval", "out of range"),
    Row(
        "a zero probe timeout",
        "timeout: 500ms",
        "timeout: 0ms",
        "health_checks.web-http.timeout",
        "out of range",
    ),
    Row("rise of 0", "rise: 2", "rise: 0", "health_checks.tcp-open.rise", "write a number from 1 to"),
    Row("fall of 0", "fall: 3", "fall: 0", "health_checks.tcp-open.fall", "write a number from 1 to"),
    Row("a short hold time", "hold_time: 9s", "hold_time: 2s", "bgp.neighbors[0].hold_time", "from 3s to"),
    Row(
        "half a second of hold time",
        "hold_time: 9s",
        "hold_time: 9500ms",
        "bgp.neighbors[0].hold_time",
        "write 10s",
    ),
    Row("a short lease", "lease: 3s", "lease: 500ms", "bgp.lease", "from 1s to 1h"),
    Row(
        "a password with a quote",
        "password: null",
        "password: 'a\"b'",
        "bgp.neighbors[0].password",
        "printable",
    ),
    Row(
        "a numeric password",
        "password: null",
        "password: 1234",
        "bgp.neighbors[0].password",
        "is not a password",
    ),
    Row("AS 0", "local_as: 65002", "local_as: 0", "bgp.local_as", "from 1 to 4294967295"),
    Row(
        "an AS over 32 bits",
        "remote_as: 65001",
        "remote_as: 4294967296",
        "bgp.neighbors[0].remote_as",
        "from 1 to 4294967295",
    ),
    Row(
        "a router id of 0",
        "router_id: 10.0.2.2",
        "router_id: 0.0.0.0",
        "bgp.router_id",
        "write an IPv4 address",
    ),
    Row("port 0", PORT, "    port: 0\n", "vips[0].port", "from 1 to 65535, without quotes, or any", "port: 0"),
    Row("port 65536", PORT, "    port: 65536\n", "vips[0].port", "from 1 to 65535", "port: 65536"),
    Row("a port in quotes", PORT, "    port: '80'\n", "vips[0].port", "without quotes", "port: '80'"),
    Row(
        "a check's port out of range",
        "port: 80, path",
        "port: 70000, path",
        "health_checks.web-http.port",
        "65535",
    ),
    Row(
        "a weight in quotes",
        "web1, address: 10.0.3.2, weight: 100",
        'web1, address: 10.0.3.2, weight: "100"',
        "backend_pools.web.backends[0].weight",
        "without quotes",
    ),
    Row(
        "a negative weight",
        "web1, address: 10.0.3.2, weight: 100",
        "web1, address: 10.0.3.2, weight: -1",
        "backend_pools.web.backends[0].weight",
        "from 0 to 1000000",
    ),
    Row(
        "a fraction for a weight",
        "web1, address: 10.0.3.2, weight: 100",
        "web1, address: 10.0.3.2, weight: 1.5",
        "backend_pools.web.backends[0].weight",
        "1.5 is not a whole number; write one from 0 to 1000000",
    ),
    Row(
        "yes for a truth",
        "drain: true",
        "drain: yes",
        "backend_pools.web.backends[1].drain",
        "write true or false",
    ),
    Row("1 for a truth", "hugepages: true", "hugepages: 1", "forwarder.hugepages", "write true or false"),
    Row(
        "true for a number",
        "min_healthy: 1",
        "min_healthy: true",
        "vips[0].min_healthy",
        "true is not a whole number; write one from 1",
    ),
    Row("min_healthy of 0", "min_healthy: 1", "min_healthy: 0", "vips[0].min_healthy", "write a number from 1"),
    Row(
        "an even table size",
        "table_size: 65537",
        "table_size: 65536",
        "vips[0].table_size",
        "65536 is not a prime; write 65537",
    ),
    Row(
        "a table size of 0",
        "table_size: 65537",
        "table_size: 0",
        "vips[0].table_size",
        "write a prime from 2",
    ),
    Row(
        "a table size of 1",
        "table_size: 65537",
        "table_size: 1",
        "vips[0].table_size",
        "write a prime from 2",
    ),
    Row(
        "a table size of 4",
        "table_size: 65537",
        "table_size: 4",
        "vips[0].table_size",
        "not a prime; write 5",
    ),
    Row(
        "a table size of -7",
        "table_size: 65537",
        "table_size: -7",
        "vips[0].table_size",
        "write a prime from 2",
    ),
    Row("a huge table", "table_size: 65537", "table_size: 16777259", "vips[0].table_size", "to 16777216"),
    Row(
        "a ring of 1000",
        "ring_size: 2048",
        "ring_size: 1000",
        "forwarder.ring_size",
        "power of two; write 1024",
    ),
    Row(
        "a tiny ring",
        "ring_size: 2048",
        "ring_size: 2",
        "forwarder.ring_size",
        "power of two from 64 to 65536",
    ),
    Row("a tiny packet pool", "packet_pool: 16384", "packet_pool: 1", "forwarder.packet_pool", "from 1024 to"),
    Row("no entries", "entries: 1048576", "entries: 0", "forwarder.connection_table.entries", "from 64 to"),
    Row("a tiny MTU", "mtu: 1500", "mtu: 100", "forwarder.ports[0].mtu", "from 576 to 9216"),
    Row("a negative CPU", "workers: [1]", "workers: [-1]", "forwarder.lcores.workers[0]", "from 0 to"),
    Row("an unknown protocol", "protocol: tcp", "protocol: sctp", "vips[0].protocol", "write tcp or udp"),
    Row(
        "an unknown affinity",
        "affinity: flow",
        "affinity: source",
        "vips[0].affinity",
        "write flow or client",
    ),
    Row(
        "a load bound of 1",
        PORT,
        PORT + "    load_bound: 1\n",
        "vips[0].load_bound",
        "1 is out of range; write a number from 1.01 to 10",
        "load_bound",
    ),
    Row(
        "a load bound over 10",
        PORT,
        PORT + "    load_bound: 10.1\n",
        "vips[0].load_bound",
        "10.1 is out of range; write a number from 1.01 to 10",
        "load_bound",
    ),
    Row(
        "a load bound in percent",
        PORT,
        PORT + "    load_bound: 125%\n",
        "vips[0].load_bound",
        '"125%" is not a number; write one from 1.01 to 10, without quotes',
        "load_bound",
    ),
    Row(
        "a load bound that is a switch",
        PORT,
        PORT + "    load_bound: true\n",
        "vips[0].load_bound",
        "true is not a number; write one from 1.01 to 10",
        "load_bound",
    ),
    Row(
        "another scheduler",
        "scheduler: maglev",
        "scheduler: rr",
        "vips[0].scheduler",
        '"rr" is not known; write maglev, rendezvous, ring, ketama, bounded, jump, gateway, range or modulo',
    ),
    Row(
        "no word for a scheduler", "scheduler: maglev", "scheduler: 5", "vips[0].scheduler", "5 is not known; write m"
    ),
    Row(
        "a scheduler in capitals", "scheduler: maglev", "scheduler: Ring", "vips[0].scheduler", '"Ring" is not known'
    ),
    Row(
        "a scheme that compares with Maglev only",
        "scheduler: maglev",
        "scheduler: shuffle",
        "vips[0].scheduler",
        '"shuffle" is not known; write maglev, rendezvous',
    ),
    *(
        Row(
            f"{scheme}, which has a history",
            "scheduler: maglev",
            f"scheduler: {scheme}",
            "vips[0].scheduler",
            f'"{scheme}" depends on its past, so that nodes would not agree; write maglev, rendezvous, ring, ketama, '
            "bounded, jump, gateway, range or modulo",
        )
        for scheme in WITH_HISTORY
    ),
    Row("unknown steering", "steering: software", "steering: nic", "forwarder.steering", "write software or rss"),
    Row(
        "an unknown driver",
        "driver: auto",
        "driver: xdp",
        "forwarder.ports[0].driver",
        "write auto, af_packet, af_xdp, pci or vdev",
    ),
    Row(
        "a PCI address that is none",
        "device: eth1",
        "device: 0000:3b:00.8",
        "forwarder.ports[0].device",
        "write an interface name such as eth1, a PCI address, or a vdev string",
    ),
    Row(
        "a tap whose name no interface can have",
        "mtu: 1500",
        "tap: maglev-port-0-tap",
        "forwarder.ports[0].tap",
        "write one such as maglev0, 15 characters at most",
    ),
    Row(
        "a device that is none",
        "device: eth1",
        "device: an-interface-name-too-long",
        "forwarder.ports[0].device",
        "write an interface name",
    ),
    Row("FRR as speaker", "speaker: exabgp", "speaker: frr", "bgp.speaker", "write exabgp, bird or none"),
    Row(
        "an unknown check type",
        "{type: tcp, port: 80,",
        "{type: grpc, port: 80,",
        "health_checks.tcp-open.type",
        "write http, https, tcp, udp or icmp",
    ),
    Row(
        "a TCP check without port",
        "{type: tcp, port: 80,",
        "{type: tcp,",
        "health_checks.tcp-open.port",
        "is missing; write port: 80",
    ),
    Row(
        "an HTTP key in a TCP check",
        "{type: tcp, port: 80,",
        "{type: tcp, port: 80, path: /,",
        "health_checks.tcp-open.path",
        "is a key of type http or https only; leave it out, or write type: http",
    ),
    Row("a check without type", "{type: tcp, port", "{port", "health_checks.tcp-open.type", "write type: http"),
    Row("a number for a type", "type: tcp", "type: 7", "health_checks.tcp-open.type", "7 is not known; write http,"),
    Row(
        "a port in an ICMP check",
        "{type: tcp, port: 80,",
        "{type: icmp, port: 80,",
        "health_checks.tcp-open.port",
        "is a key of type http, https, tcp or udp only; leave it out, or write type: http",
    ),
    Row(
        "a misspelt key of a check",
        "{type: tcp, port: 80,",
        "{type: tcp, port: 80, intervall: 1s,",
        "health_checks.tcp-open.intervall",
        "is not a key here; write interval",
    ),
    Row(
        "a UDP check that sends nothing",
        "{type: tcp, port: 80,",
        "{type: udp, port: 80,",
        "health_checks.tcp-open.send",
        "is missing; write send: ping",
    ),
    *(
        Row(
            f"a UDP check that sends {what}",
            "{type: tcp, port: 80,",
            f"{{type: udp, port: 53, send: {send},",
            "health_checks.tcp-open.send",
            words,
        )
        for what, send, words in (
            ("an empty text", '""', '"" is no payload; write text in quotes, or bytes such as "hex:0d0a"'),
            ("a number", "1", "1 is no payload"),
            ("half a byte", '"hex:0d0"', "write two digits for each byte"),
            ("no bytes", '"hex:"', "write two digits for each byte"),
            ("more than a packet", "x" * 1201, "has 1201 bytes; write at most 1200"),
        )
    ),
    Row(
        "a switch that is text",
        "{type: tcp, port: 80,",
        "{type: https, verify: 'no',",
        "health_checks.tcp-open.verify",
        "write true or false",
    ),
    *(
        Row(
            f"a panic above {share}",
            "    health_checks: [web-http]\n",
            f"    health_checks: [web-http]\n    panic_above: {share}\n",
            "backend_pools.web.panic_above",
            "is no share; write a number from 0.01 to 0.99, such as 0.5",
        )
        for share in ("1.0", "0", "50%", "true")
    ),
    Row(
        "a URL for a path",
        "path: /healthz",
        "path: http://web/healthz",
        "health_checks.web-http.path",
        "names a host; write the path alone",
    ),
    Row(
        "a path with two slashes",
        "path: /healthz",
        "path: //web/healthz",
        "health_checks.web-http.path",
        "host",
    ),
    Row(
        "a relative path",
        "path: /healthz",
        "path: healthz",
        "health_checks.web-http.path",
        "write one such as /",
    ),
    Row(
        "a path with a line end",
        "path: /healthz",
        'path: "/\\r\\nX: y"',
        "health_checks.web-http.path",
        "URL path",
    ),
    Row("a host with a slash", "host: null", "host: a/b", "health_checks.web-http.host", "is not a host name"),
    Row("status 99", "[200]", "[99]", "health_checks.web-http.expect_status[0]", "from 100 to 599"),
    Row(
        "a status twice",
        "[200]",
        "[200, 200]",
        "health_checks.web-http.expect_status",
        "twice; write it once",
    ),
    Row(
        "a check twice in a pool",
        "[web-http]",
        "[web-http, web-http]",
        "backend_pools.web.health_checks",
        "has the health check web-http twice",
    ),
    Row(
        "a pool twice in a vip",
        "pools: [web]",
        "pools: [web, web]",
        "vips[0].pools",
        "has the pool web twice",
    ),
    Row(
        "a multicast MAC",
        "mac: null",
        "mac: '01:00:5e:00:00:01'",
        "forwarder.ports[0].gateway.mac",
        "of one host",
    ),
    Row(
        "a MAC with dashes",
        "mac: null",
        "mac: 02-00-00-00-00-01",
        "forwarder.ports[0].gateway.mac",
        "02:00:00",
    ),
]


@pytest.mark.parametrize("row", VALUES, ids=lambda row: row.what)
def test_a_wrong_value_is_refused_with_line_key_and_what_to_write(row: Row) -> None:
    assert_refused(row)


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_every_scheduler_is_taken(scheduler: str) -> None:
    (vip,) = loads(edited("scheduler: maglev", f"scheduler: {scheduler}")).all_services
    assert vip.scheduler == scheduler


def test_the_scheduler_is_maglev_unless_another_is_named() -> None:
    (vip,) = loads(edited("    scheduler: maglev\n", "")).all_services
    assert vip.scheduler == "maglev"
