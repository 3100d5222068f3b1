"""Mistakes that only several keys together make."""

import pytest
from config_text import GOOD, Row, assert_refused

from controller.config import loads

PORT = "    port: 80\n"
VIP = "  - name: www\n"
SPARE = "      - {name: web3, address: 10.0.5.2}\n"
VIP_ADDRESS = "    address: 192.0.2.1\n"

IPV6_BACKEND = (("10.0.5.2", '"fd00:5::2"'),)
IPV6_VIP = (("192.0.2.1", '"2001:db8::1"'), ("next_hop: {ipv4: 10.0.2.2}", 'next_hop: {ipv6: "fd00:2::2"}'))
RULES = [
    Row(
        "a check through the tunnel without a source in the vip's family",
        'tunnel_source: {ipv4: 10.0.2.2, ipv6: "fd00:2::2"}',
        "tunnel_source: {ipv4: 10.0.2.2}",
        "node.tunnel_source.ipv6",
        "health checks through the tunnel to vip www come from it; write the node's IPv6 address",
        also=(*IPV6_VIP, ("{type: http,", "{type: http, via: tunnel,")),
    ),
    Row(
        "a load bound for UDP",
        "    protocol: tcp\n",
        "    protocol: udp\n    load_bound: 1.25\n",
        "vips[0].load_bound",
        "is for tcp, where a SYN begins a flow, and the protocol is udp; leave it out",
    ),
    Row(
        "a load bound for clients that stay",
        "    affinity: flow\n",
        "    affinity: client\n    load_bound: 1.25\n",
        "vips[0].load_bound",
        "would tear the flows of a client apart, which affinity: client keeps together; leave one out",
    ),
    Row(
        "the vdev driver for an interface",
        "driver: auto",
        "driver: vdev",
        "forwarder.ports[0].driver",
        "write af_packet or auto",
    ),
    Row(
        "af_packet for a vdev",
        "device: eth1\n      driver: auto",
        "device: net_null0\n      driver: af_packet",
        "forwarder.ports[0].driver",
        "write vdev or auto",
    ),
    Row(
        "a device twice",
        "    - device: eth1\n",
        "    - {device: eth1}\n    - device: eth1\n",
        "forwarder.ports[1].device",
        "is already port 0; write each device once",
    ),
    Row(
        "a shared CPU that spins",
        "idle: sleep",
        "idle: spin",
        "forwarder.lcores",
        "write a CPU for each",
        "lcores:",
    ),
    Row(
        "two workers that spin on one CPU",
        "steering: software\n  lcores: {steering: 0, workers: [1], muxing: 0}\n  idle: sleep",
        "steering: rss\n  lcores: {steering: 0, workers: [1, 1], muxing: 0}\n  idle: spin",
        "forwarder.lcores",
        "CPU 1 has several stages",
        "lcores:",
    ),
    Row(
        "an announcement without AS",
        "  local_as: 65002\n",
        "",
        "bgp.local_as",
        "is missing; write local_as",
        "bgp:",
    ),
    Row(
        "an announcement without router id",
        "  router_id: 10.0.2.2\n",
        "",
        "bgp.router_id",
        "is missing",
        "bgp:",
    ),
    Row(
        "an announcement to nobody",
        "  neighbors:\n    - {address: 10.0.2.1, remote_as: 65001, hold_time: 9s, password: null}\n",
        "",
        "bgp.neighbors",
        "write at least one neighbor",
        "bgp:",
    ),
    Row(
        "a neighbor twice",
        "  next_hop:",
        "    - {address: 10.0.2.1, remote_as: 1}\n  next_hop:",
        "bgp.neighbors[1].address",
        "is already neighbor 0",
        "remote_as: 1}",
    ),
    Row(
        "itself as neighbor",
        "{address: 10.0.2.1, remote_as",
        "{address: 10.0.2.2, remote_as",
        "bgp.neighbors[0].address",
        "is this node",
    ),
    Row(
        "no next hop of a vip's family",
        "next_hop: {ipv4: 10.0.2.2}",
        'next_hop: {ipv6: "fd00:2::2"}',
        "bgp.next_hop.ipv4",
        "vip www is announced with it; write the node's IPv4 address",
    ),
    Row(
        "no tunnel source of a backend's family",
        'tunnel_source: {ipv4: 10.0.2.2, ipv6: "fd00:2::2"}',
        'tunnel_source: {ipv6: "fd00:2::2"}',
        "node.tunnel_source.ipv4",
        "backend web1 needs it; write",
    ),
    Row(
        "no tunnel source for an IPv6 backend of an inner pool",
        'tunnel_source: {ipv4: 10.0.2.2, ipv6: "fd00:2::2"}',
        "tunnel_source: {ipv4: 10.0.2.2}",
        "node.tunnel_source.ipv6",
        "backend web3 needs it",
        also=IPV6_BACKEND,
    ),
    Row(
        "an MTU too small for IPv6 backends",
        "mtu: 1500",
        "mtu: 1279",
        "forwarder.ports[0].mtu",
        "write at least 1280",
        also=IPV6_BACKEND,
    ),
    Row(
        "an MTU too small for an IPv6 vip over IPv6",
        "mtu: 1500",
        "mtu: 1323",
        "forwarder.ports[0].mtu",
        "write at least 1324",
        also=(*IPV6_BACKEND, *IPV6_VIP),
    ),
    Row(
        "a timeout beyond the interval",
        "interval: 1s",
        "interval: 100ms",
        "health_checks.web-http.timeout",
        "longer than the interval",
    ),
    Row(
        "a fast interval beyond the interval",
        "rise: 2,",
        "fast_interval: 2s, rise: 2,",
        "health_checks.tcp-open.fast_interval",
        "longer than the interval; write one of at most the interval, or leave it out",
    ),
    Row(
        "an unknown check",
        "[web-http]",
        "[web-htp]",
        "backend_pools.web.health_checks[0]",
        "there is no health check web-htp; write web-http",
    ),
    Row(
        "an unknown pool in a vip",
        "pools: [web]",
        "pools: [wib]",
        "vips[0].pools[0]",
        "no pool wib; write web",
    ),
    Row(
        "an unknown pool in a pool",
        "{pool: spare}",
        "{pool: spear}",
        "backend_pools.web.backends[2].pool",
        "no pool spear; write spare",
    ),
    Row(
        "a pool in itself",
        SPARE,
        SPARE + "      - pool: spare\n",
        "backend_pools.spare.backends[1].pool",
        "spare -> spare",
        "- pool: spare",
    ),
    Row(
        "a cycle of two",
        SPARE,
        SPARE + "      - pool: web\n",
        "backend_pools.spare.backends[1].pool",
        "web -> spare -> web; leave this entry out",
        "- pool: web",
    ),
    Row(
        "a cycle behind a way in",
        SPARE,
        SPARE + "      - pool: c\n  c: {backends: [{pool: spare}]}\n",
        "backend_pools.c.backends[0].pool",
        "spare -> c -> spare",
        "  c: {",
    ),
    Row(
        "a vip name twice",
        VIP,
        "  - {name: www, address: 192.0.2.9, port: 80, pools: [web]}\n" + VIP,
        "vips[1].name",
        "is already vip 0; write another name",
        "- name: www",
    ),
    Row(
        "a vip's address, protocol and port twice",
        VIP,
        "  - {name: w, address: 192.0.2.1, port: 80, pools: [web]}\n" + VIP,
        "vips[1].port",
        "192.0.2.1 tcp port 80 is already vip w",
        "    port: 80",
    ),
    Row(
        "any port of an address twice",
        VIP + VIP_ADDRESS + "    protocol: tcp\n" + PORT,
        "  - {name: w, address: 192.0.2.1, port: any, pools: [web]}\n" + VIP + VIP_ADDRESS + "    port: any\n",
        "vips[1].port",
        "any port is already vip w",
        "    port: any",
    ),
    Row(
        "a vip that is the node",
        VIP_ADDRESS,
        "    address: 10.0.2.2\n",
        "vips[0].address",
        "is this node",
        "    address: 10.0.2.2",
    ),
    Row(
        "a backend name twice in a pool",
        SPARE,
        SPARE + "      - {name: web3, address: 10.0.5.3}\n",
        "backend_pools.spare.backends[1].name",
        "is already entry 0",
        "10.0.5.3",
    ),
    Row(
        "a backend address twice in a pool",
        SPARE,
        SPARE + "      - {name: web9, address: 10.0.5.2}\n",
        "backend_pools.spare.backends[1].address",
        "is already entry 0",
        "web9",
    ),
    Row(
        "a pool twice in a pool",
        "{pool: spare}",
        "{pool: spare}\n      - {'pool': spare}",
        "backend_pools.web.backends[3].pool",
        "is already entry 2",
        "'pool'",
    ),
    Row(
        "a name with two addresses",
        SPARE,
        SPARE + "  far: {backends: [{name: web1, address: 10.9.9.9}]}\n",
        "backend_pools.far.backends[0].address",
        "backend web1 also has the address 10.0.3.2",
        "far:",
    ),
    Row(
        "an address with two names",
        SPARE,
        SPARE + "  far: {backends: [{name: far1, address: 10.0.3.2}]}\n",
        "backend_pools.far.backends[0].name",
        "address 10.0.3.2 is also named web1",
        "far:",
    ),
    Row(
        "a backend that is a vip",
        "address: 10.0.5.2",
        "address: 192.0.2.1",
        "backend_pools.spare.backends[0].address",
        "is the address of vip www",
    ),
    Row(
        "a backend that is the tunnel source",
        "address: 10.0.5.2",
        "address: fd00:2::2",
        "backend_pools.spare.backends[0].address",
        "is this node (node.tunnel_source.ipv6)",
    ),
    Row(
        "a backend reached with two weights",
        SPARE,
        SPARE + "      - {name: web1, address: 10.0.3.2, weight: 5}\n",
        "backend_pools.spare.backends[1].weight",
        "reaches web1 also by web with another weight; write 100 in both",
        "weight: 5",
    ),
    Row(
        "a backend reached draining and not",
        SPARE,
        SPARE + "      - {name: web2, address: 10.0.4.2}\n",
        "backend_pools.spare.backends[1].drain",
        "write true in both",
        "- {name: web2, address: 10.0.4.2}",
    ),
    Row(
        "fewer slots than backends",
        "table_size: 65537",
        "table_size: 2",
        "vips[0].table_size",
        "too few for 3 backends; write a prime above 3",
    ),
]


@pytest.mark.parametrize("row", RULES, ids=lambda row: row.what)
def test_what_does_not_fit_together_is_refused_with_line_key_and_what_to_write(row: Row) -> None:
    assert_refused(row)


def test_with_rss_steering_and_muxing_need_no_cpus_of_their_own() -> None:
    text = GOOD.replace("steering: software", "steering: rss").replace("idle: sleep", "idle: spin")
    assert loads(text).forwarder.idle == "spin"
