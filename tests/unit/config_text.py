"""The configuration that the tests edit, and what an edit that makes one mistake must be answered with."""

import re
from dataclasses import dataclass

import pytest

from controller.config import ConfigError, loads

GOOD = """\
node:
  name: lb1
  tunnel_source: {ipv4: 10.0.2.2, ipv6: "fd00:2::2"}
  hash_key: "000102030405060708090a0b0c0d0e0f"
  drain_time: 10s
forwarder:
  ports:
    - device: eth1
      driver: auto
      gateway: {ipv4: 10.0.2.1, ipv6: null, mac: null}
      mtu: 1500
  steering: software
  lcores: {steering: 0, workers: [1], muxing: 0}
  idle: sleep
  packet_pool: 16384
  ring_size: 2048
  connection_table: {entries: 1048576, tcp_half_open: 10s, tcp_established: 2h, tcp_closing: 10s, udp: 60s}
  hugepages: true
bgp:
  speaker: exabgp
  local_as: 65002
  router_id: 10.0.2.2
  neighbors:
    - {address: 10.0.2.1, remote_as: 65001, hold_time: 9s, password: null}
  next_hop: {ipv4: 10.0.2.2}
  lease: 3s
health_checks:
  web-http: {type: http, port: 80, path: /healthz, host: null, expect_status: [200],
             interval: 1s, timeout: 500ms}
  tcp-open: {type: tcp, port: 80, rise: 2, fall: 3}
backend_pools:
  web:
    health_checks: [web-http]
    backends:
      - {name: web1, address: 10.0.3.2, weight: 100}
      - {name: web2, address: 10.0.4.2, weight: 100, drain: true}
      - {pool: spare}
  spare:
    health_checks: [tcp-open]
    backends:
      - {name: web3, address: 10.0.5.2}
vips:
  - name: www
    address: 192.0.2.1
    protocol: tcp
    port: 80
    pools: [web]
    scheduler: maglev
    table_size: 65537
    affinity: flow
    min_healthy: 1
"""


def edited(old: str, new: str) -> str:
    """The good configuration with one edit."""
    assert GOOD.count(old) == 1, f"{old!r} must stand exactly once"
    return GOOD.replace(old, new)


@dataclass(frozen=True)
class Row:
    """One kind of mistake: the edit that makes it, and where and in which words it is refused."""

    what: str
    old: str
    new: str
    key: str
    words: str
    at: str = ""
    """Text on the line that is to be named; by default the edit's last line."""
    also: tuple[tuple[str, str], ...] = ()
    """Replacements that make the ground for the mistake and are none themselves."""

    def line(self) -> int:
        """The line that is to be named."""
        text = edited(self.old, self.new)
        at = text.index(self.at) if self.at else GOOD.index(self.old) + len(self.new.rstrip("\n"))
        return text.count("\n", 0, at) + 1


def assert_refused(row: Row) -> None:
    """The mistake is found where it is, and every problem says what to write."""
    text = edited(row.old, row.new)
    for old, new in row.also:
        text = text.replace(old, new)
    with pytest.raises(ConfigError) as refusal:
        loads(text, "lb.yaml")
    found = [(p.key, p.line) for p in refusal.value.problems if row.words in p.message]
    assert (row.key, row.line()) in found, str(refusal.value)
    assert all(re.search("write|leave|not YAML", p.message) for p in refusal.value.problems)
