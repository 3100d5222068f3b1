"""Background tasks that do not die in silence."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import structlog

log = structlog.get_logger(__name__)


def background(work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
    """Run `work` beside everything else; the caller keeps the task. A fault that ends it is logged."""
    task = asyncio.create_task(work, name=name)
    task.add_done_callback(_report)
    return task


async def end(task: asyncio.Task[None] | None) -> None:
    """Cancel a task and wait until it is over."""
    if task:
        task.cancel()
        await asyncio.wait((task,))


def _report(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()):
        log.error("task failed", task=task.get_name(), exc_info=error)
