"""BIRD as the speaker: its configuration, and what it says of its sessions."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from config_text import GOOD

from controller.config import loads
from controller.config_sections import Bgp
from controller.speakers.bird import _inner, _states, render

TWO = GOOD.replace("speaker: exabgp", "speaker: bird").replace("next_hop: {ipv4: 10.0.2.2}",
    'next_hop: {ipv4: 10.0.2.2, ipv6: "fd00:2::2"}').replace(
    "    - {address: 10.0.2.1, remote_as: 65001, hold_time: 9s, password: null}",
    "    - {address: 10.0.2.1, remote_as: 65001, hold_time: 9s, password: S3cr#t}\n"
    '    - {address: "fd00:2::1", remote_as: 65003, hold_time: 30s}')  # fmt: skip


@pytest.fixture
def bgp() -> Bgp:
    return loads(TWO).bgp


def test_each_neighbor_gets_what_exabgp_says_and_nothing_is_learned(bgp: Bgp) -> None:
    text = render(bgp)
    first, second = re.findall(r"protocol bgp neighbor\d \{.*?\n\}", text, re.DOTALL)
    assert "neighbor 10.0.2.1 as 65001;" in first
    assert 'password "S3cr#t";' in first
    assert "neighbor fd00:2::1 as 65003;" in second
    assert "password" not in second
    assert "hold time 30;" in second
    for block in (first, second):
        assert "bfd on;" in block
        assert "graceful restart off;" in block
        assert 'ipv4 { import none; export where proto = "exabgp"; next hop address 10.0.2.2; };' in block
        assert 'ipv6 { import none; export where proto = "exabgp"; next hop address fd00:2::2; };' in block


def test_exabgp_speaks_to_bird_alone_under_another_router_id(bgp: Bgp) -> None:
    inner = _inner(bgp)
    assert [(str(n.address), n.remote_as) for n in inner.neighbors] == [("127.0.0.2", 65002)]
    assert inner.local_as == 65002
    assert str(inner.router_id) != str(bgp.router_id)
    assert inner.next_hop == bgp.next_hop


@pytest.mark.skipif(shutil.which("bird") is None, reason="BIRD 2 is not installed")
def test_bird_takes_the_configuration(bgp: Bgp, tmp_path: Path) -> None:
    path = tmp_path / "bird.conf"
    path.write_text(render(bgp))
    checked = subprocess.run(["bird", "-p", "-c", str(path)], capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def test_sessions_are_read_from_what_bird_prints() -> None:
    answer = (
        "2002-Name       Proto      Table      State  Since         Info\n"
        "1002-device1    Device     ---        up     05:00:00.000  \n"
        " exabgp     BGP        ---        up     05:00:01.000  Established   \n"
        " neighbor0  BGP        ---        up     05:00:01.000  Established   \n"
        " neighbor1  BGP        ---        start  05:00:01.000  Active        Socket: Connection refused\n"
        " neighbor2  BGP        ---        down   05:00:01.000  \n"
        "0000 \n"
    )
    assert dict(_states(answer)) == {
        "exabgp": "up",
        "neighbor0": "up",
        "neighbor1": "down - Active Socket: Connection refused",
        "neighbor2": "down - down",
    }
