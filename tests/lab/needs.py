"""What tests of this directory need of the machine; where it is missing they are skipped, which CI does not allow."""

from __future__ import annotations

import importlib.util
import os
import shutil

import pytest

from forwarder import xdp
from lab import machine


def tools(*names: str) -> pytest.MarkDecorator:
    missing = [name for name in names if not shutil.which(name)]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")


AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")
TUN = pytest.mark.skipif(not machine.TUN.exists(), reason="no /dev/net/tun")
BUILT = pytest.mark.skipif(
    importlib.util.find_spec("forwarder._dataplane") is None, reason="the forwarder is not built"
)
XDP = pytest.mark.skipif(not xdp.OBJECT.exists(), reason="the XDP program is not built")
WIRE = [AS_ROOT, tools("ip", "ethtool", "sysctl"), BUILT]
"""A forwarder on a wire of its own."""
LAB = [AS_ROOT, tools(*machine.TOOLS), TUN, BUILT]
"""The whole laboratory."""
