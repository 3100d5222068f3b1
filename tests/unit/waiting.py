"""Waiting for what other processes do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


async def until(holds: Callable[[], object], seconds: float = 5.0) -> None:
    """Return once it holds; fails when it does not in time."""
    async with asyncio.timeout(seconds):
        while not holds():  # noqa: ASYNC110 - what is waited for happens outside of this event loop
            await asyncio.sleep(0.005)
