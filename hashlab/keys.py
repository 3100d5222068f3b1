"""Keys to place: MD5 of texts, first four bytes big-endian, as in the article on OpenStack Swift's ring."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import md5

import numpy as np

from forwarder.hashing.scheme import Keys

PIECE = 1 << 17
"""Texts between two signs of progress."""


def _nothing(done: int) -> None:
    pass


def md5_keys(count: int, prefix: str = "", progress: Callable[[int], None] = _nothing) -> Keys:
    """Keys of the texts prefix0, prefix1, ... prefix(count - 1). `progress` is told how many more are done."""
    keys = np.empty(count, dtype=np.uint32)
    form = prefix.replace("%", "%%").encode() + b"%d"
    for start in range(0, count, PIECE):
        end = min(start + PIECE, count)
        joined = b"".join([md5(form % number, usedforsecurity=False).digest() for number in range(start, end)])
        keys[start:end] = np.frombuffer(joined, dtype=">u4")[::4]
        progress(end - start)
    return keys
