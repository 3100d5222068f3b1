"""Which probes go through the tunnel: one per backend, check and vip address, and what it does to members."""

from __future__ import annotations

import os
import socket
from ipaddress import ip_address

import pytest
from config_text import GOOD

from controller import probe_tunnel
from controller.config import loads
from controller.config_sections import PerFamily
from controller.model import CheckKey, check_keys
from controller.probe_tunnel import _source_port
from controller.probes.probe import NotProbedError

TUNNEL = GOOD.replace("{type: http,", "{type: http, via: tunnel,")
OTHER = """
  - {name: other, address: 192.0.2.9, port: 80, pools: [web]}
  - {name: again, address: 192.0.2.9, port: 81, pools: [web]}
"""


def test_a_check_through_the_tunnel_is_made_once_for_each_address_of_a_vip() -> None:
    keys = check_keys(loads(TUNNEL.rstrip("\n") + OTHER).all_services)
    web1, web3 = ip_address("10.0.3.2"), ip_address("10.0.5.2")
    mine = {key for key in keys if key.address == web1}
    assert mine == {CheckKey(web1, "web-http", ip_address(vip)) for vip in ("192.0.2.1", "192.0.2.9")}
    assert {key for key in keys if key.address == web3} == {CheckKey(web3, "tcp-open")}, "this one goes directly"


def test_members_of_several_vips_are_equal_unless_a_check_is_about_the_vip() -> None:
    def members(text: str) -> list[object]:
        return [vip.members for vip in loads(text.rstrip("\n") + OTHER).all_services]

    again, other, www = members(GOOD)
    assert again == other == www
    again, other, www = members(TUNNEL)
    assert again == other != www


def test_whether_any_probe_needs_the_tunnel() -> None:
    assert not loads(GOOD).probes_through_tunnel()
    assert loads(TUNNEL).probes_through_tunnel()


async def test_a_tunnel_that_is_being_closed_takes_no_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    tunnel = probe_tunnel.ProbeTunnel(PerFamily.model_validate({"ipv4": "10.0.2.2"}))
    tunnel._tun, other = os.pipe()
    seen: list[bool] = []

    async def forget_rules() -> None:
        seen.append(tunnel.open)
        with pytest.raises(NotProbedError, match="the tunnel for probes is closed"):
            await tunnel.to(ip_address("10.0.3.2"))(ip_address("192.0.2.1"), 80, socket.SOCK_STREAM, 0)

    monkeypatch.setattr(probe_tunnel, "_forget_rules", forget_rules)
    await tunnel.stop()
    os.close(other)
    assert seen == [False]


def test_the_source_port_is_found_in_what_the_kernel_makes_and_in_nothing_else() -> None:
    ipv4 = bytes([0x45, *bytes(8), 6, *bytes(10)])
    ipv6 = bytes([0x60, *bytes(5), 17, *bytes(33)])
    assert _source_port(ipv4 + b"\x9c\x40") == (4, 6, 40000)
    assert _source_port(ipv6 + b"\x9c\x40") == (6, 17, 40000)
    icmp = ipv4[:9] + b"\x01" + ipv4[10:]
    for odd in (b"", b"\x45", ipv4, ipv4 + b"\x9c", icmp + b"\0\0", b"\x15" + ipv4[1:] + b"\0\0", ipv6[:30]):
        assert _source_port(odd) is None
