"""How many files this process may have open, and so how many probes may be under way."""

from __future__ import annotations

import math
import resource
from collections.abc import Iterable

from controller.probes.check import Check

_ENOUGH = 1 << 20
"""More is not asked for: a child that closes all numbers up to its limit would never end."""

_OTHERS = 256
"""Files that are not for probes: the API and its clients, forwarder, speaker, logs."""


def raise_file_limit() -> int:
    """Take what the hard limit allows; returns the limit that holds from here on, for children too."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _ENOUGH if hard == resource.RLIM_INFINITY else min(hard, _ENOUGH)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return wanted
    return _ENOUGH if soft == resource.RLIM_INFINITY else soft


def probes_at_once(limit: int) -> int:
    """How many probes, of one file each, such a limit leaves room for."""
    return max(limit - _OTHERS, limit // 4, 1)


def most_at_once(checks: Iterable[Check]) -> int:
    """How many probes are under way when none of them is answered."""
    return math.ceil(math.fsum(min(1.0, check.timeout / check.pace(in_doubt=True)) for check in checks))
