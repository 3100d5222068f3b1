"""What is missing on a machine is said in one clear sentence, and with the right exit status."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from needs import AS_ROOT

ROOT = Path(__file__).resolve().parents[2]
MAGLEV = (sys.executable, "-m", "controller.cli")
NAMESPACE = "tR-node"

pytestmark = AS_ROOT

CONFIG = """
node: {{name: tr1, tunnel_source: {{ipv4: 10.0.2.2}}, hash_key: "000102030405060708090a0b0c0d0e0f"}}
forwarder:
  ports: [{{device: {device}}}]
  packet_pool: 4096
  connection_table: {{entries: 4096}}
  hugepages: {hugepages}
backend_pools: {{web: {{backends: [{{name: web1, address: 10.0.3.2}}]}}}}
vips: [{{name: www, address: 192.0.2.1, port: 80, pools: [web]}}]
"""


@pytest.fixture
def namespace() -> Iterator[str]:
    subprocess.run(["ip", "netns", "add", NAMESPACE], check=True)
    subprocess.run(["ip", "-n", NAMESPACE, "link", "add", "eth1", "type", "veth", "peer", "name", "far"], check=True)
    yield NAMESPACE
    subprocess.run(["ip", "netns", "delete", NAMESPACE], check=True)


def run(namespace: str, tmp_path: Path, device: str, hugepages: str, *wrapper: str) -> tuple[int, list[str]]:
    """Exit status and last lines of `maglev run` with such a configuration."""
    config = tmp_path / "node.yaml"
    config.write_text(CONFIG.format(device=device, hugepages=hugepages))
    tmp_path.chmod(0o755)
    done = subprocess.run(
        ["ip", "netns", "exec", namespace, *wrapper, *MAGLEV, "run", str(config)],
        cwd=ROOT,
        env={**os.environ, "MAGLEV_RUN_DIR": str(tmp_path / "run")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stderr.strip().splitlines()


def test_a_missing_interface_is_named_with_those_that_are_there(namespace: str, tmp_path: Path) -> None:
    status, lines = run(namespace, tmp_path, "eth9", "false")
    assert status == 2
    assert "eth9" in lines[-1]


def test_missing_hugepages_come_with_the_command_that_reserves_them(namespace: str, tmp_path: Path) -> None:
    pages = Path("/proc/sys/vm/nr_hugepages")
    before = pages.read_text()
    pages.write_text("0")
    try:
        status, lines = run(namespace, tmp_path, "eth1", "true")
    finally:
        pages.write_text(before)
    assert status == 2
    assert "hugepages" in lines[-1]
    assert "vm.nr_hugepages=" in lines[-1]


def test_without_root_one_sentence_says_so(namespace: str) -> None:
    if not shutil.which("setpriv"):
        pytest.skip("setpriv is missing")
    readable = subprocess.run(
        ["setpriv", "--reuid=65534", "--clear-groups", sys.executable, "-c", "import click"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if readable.returncode:
        pytest.skip("this checkout cannot be read without root")
    with tempfile.TemporaryDirectory() as directory:  # pytest's own is closed to others
        nobody = ("setpriv", "--reuid=65534", "--clear-groups")
        status, lines = run(namespace, Path(directory), "eth1", "false", *nobody)
    assert status == 2, lines
    assert "CAP_NET_RAW" in lines[-1]
    assert "run it as root" in lines[-1]


def test_missing_libdpdk_names_the_debian_package(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "setup.py", "build_ext", "--build-lib", str(tmp_path), "--build-temp", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PKG_CONFIG_LIBDIR": str(tmp_path), "PKG_CONFIG_PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "apt-get install libdpdk-dev" in done.stderr.strip().splitlines()[-1]
