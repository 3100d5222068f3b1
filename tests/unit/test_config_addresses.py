"""Addresses that no packet can be sent to as to one host, and what is no address at all."""

import pytest
from config_text import Row, assert_refused

VIP_ADDRESS = "    address: 192.0.2.1\n"
ADDRESSES = [
    Row(
        f"a vip that is {kind}",
        VIP_ADDRESS,
        f"    address: '{address}'\n",
        "vips[0].address",
        words,
        f"'{address}'",
    )
    for kind, address, words in [
        ("multicast", "224.0.0.1", "is multicast; write a unicast address"),
        ("IPv6 multicast", "ff02::1", "is multicast"),
        ("loopback", "127.0.0.1", "is loopback"),
        ("IPv6 loopback", "::1", "is loopback"),
        ("unspecified", "0.0.0.0", "is unspecified"),
        ("in 0.0.0.0/8", "0.1.2.3", "is reserved"),
        ("broadcast", "255.255.255.255", "is broadcast"),
        ("IPv4-mapped", "::ffff:192.0.2.1", "is IPv4-mapped"),
        ("link-local", "fe80::1", "is link-local"),
        ("zoned", "fe80::1%eth0", "has a zone"),
        ("a prefix", "192.0.2.0/24", "is no address"),
        ("with leading zeros", "192.0.02.1", "is no address"),
        ("a name", "www.example.net", "is no address; write one such as"),
    ]
] + [
    Row(
        "a multicast backend",
        "address: 10.0.5.2",
        "address: 239.1.1.1",
        "backend_pools.spare.backends[0].address",
        "is multicast",
    ),
    Row(
        "IPv6 as IPv4 tunnel source",
        "tunnel_source: {ipv4: 10.0.2.2",
        "tunnel_source: {ipv4: '::2'",
        "node.tunnel_source.ipv4",
        "is no IPv4 address",
    ),
    Row(
        "a number as an address",
        VIP_ADDRESS,
        "    address: 3221225985\n",
        "vips[0].address",
        "is no address",
        "3221225985",
    ),
]


@pytest.mark.parametrize("row", ADDRESSES, ids=lambda row: row.what)
def test_an_unusable_address_is_refused_with_line_key_and_what_to_write(row: Row) -> None:
    assert_refused(row)
