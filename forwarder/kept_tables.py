"""Connection tables that are kept from one forwarder process to the next: taken over, or begun empty, and why."""

import mmap
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import structlog

from forwarder import table_header, table_memory
from forwarder._dataplane import STEERING_SEED, TABLE_LAYOUT, Dataplane, table_bytes
from forwarder.settings import Settings
from forwarder.table_header import CRASHES, Header, HeaderDamaged, Identity
from forwarder.table_ids import TableIds

HEADER = "tables.json"

log = structlog.get_logger()


def clock() -> float:
    """Seconds since boot: the clock of the data plane, which all processes share."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class KeptTables:
    """The tables of one node, from the look at what is there to an end in order.

    At any moment the files are a header and the tables that it describes, or a header whose tables are missing or
    were never begun; a header is noted before there can be an entry that needs it. Raises Refused.
    """

    def __init__(self, run_dir: Path, settings: Settings) -> None:
        self._run_dir = run_dir
        self._path = run_dir / HEADER
        self._workers = len(settings.worker_cpus)
        self._bytes = table_bytes(settings.connection_entries)
        self._place = table_memory.place(run_dir, settings.hugepages)
        identity = Identity(
            layout=TABLE_LAYOUT,
            boot=table_header.boot_id(),
            key=table_header.key_fingerprint(settings.hash_key),
            seed=STEERING_SEED,
            workers=self._workers,
            entries=settings.connection_entries,
            directory=str(self._place.directory),
        )
        self._header = Header(identity)
        self._written = ""
        self._kept = 0
        self._empty = self._look()
        if self._empty is not None:
            table_memory.remove(run_dir)
        self._save()

    def _look(self) -> str | None:
        """Find what there is; returns why the tables must begin empty, None when they can be taken over."""
        try:
            before = table_header.read(self._path)
        except HeaderDamaged as error:
            return f"what was noted of them in {self._path} {error}"
        if before is None:
            return "no forwarder of this node ran before"
        ours = self._header.identity
        before = before.found(clock())
        if before.identity.boot == ours.boot:
            self._header = Header(ours, crashes=before.crashes)
        if len(self._header.crashes) >= CRASHES:
            return f"the forwarder crashed {len(self._header.crashes)} times within a minute"
        # How flows are spread is not known before ports are open.
        same_spread = replace(ours, seed=before.identity.seed)
        difference = before.identity.difference(same_spread) or self._place.difference(self._workers, self._bytes)
        if difference is None:
            self._header = before
        return difference

    @property
    def ids(self) -> TableIds:
        """What the numbers in the tables stand for."""
        return self._header.ids

    @property
    def new_hugepage_bytes(self) -> int:
        """What `open` will take of the hugepages that are free."""
        if self._empty is None or not self._place.hugepages:
            return 0
        return self._workers * self._place.file_bytes(self._bytes)

    def open(self, spread: int = STEERING_SEED) -> list[mmap.mmap]:
        """The memory of the tables, one per worker, whose flows are spread over them in this way. Raises Refused."""
        ours = replace(self._header.identity, seed=spread)
        difference = self._header.identity.difference(ours)
        if difference is not None:
            self._header = Header(ours, crashes=self._header.crashes)
            if self._empty is None:
                self._empty = difference
                table_memory.remove(self._run_dir)
            self._save()
        make = self._place.open if self._empty is None else self._place.create
        return make(self._workers, self._bytes)

    def take_over(self, dataplane: Dataplane) -> None:
        """Let the data plane, not running yet, go on with the flows. From here on an end without `end` is a crash."""
        self._header = replace(self._header, ended=False)
        self._save()
        began = time.perf_counter()
        backends, vips = dict(self.ids.backends.values()), dict(self.ids.vips.values())
        if not dataplane.take_over(backends, vips, int(clock())) and self._empty is None:
            self._empty = "a table is damaged, or was never begun"
        seconds = time.perf_counter() - began
        self._kept = sum(dataplane.worker(worker)["live"] for worker in range(self._workers))
        log.info(
            "connection tables", **self.describe(), seconds=round(seconds, 3), directory=str(self._place.directory)
        )

    def note(self, ids: TableIds) -> None:
        """What the numbers stand for from now on; before a state with new ones is published."""
        self._header = replace(self._header, ids=ids)
        self._save()

    def end(self) -> None:
        """The data plane has stopped in order; its tables wait for the next process."""
        self._header = replace(self._header, ended=True)
        self._save()

    def give_up(self) -> None:
        """The start was refused: what was made for it goes, what was kept before stays."""
        if self._empty is not None:
            self._path.unlink(missing_ok=True)
            table_memory.remove(self._run_dir)

    def describe(self) -> dict[str, Any]:
        """For stats: connections that were kept, or why the tables began empty."""
        return {"kept": self._kept, "started_empty": self._empty}

    def _save(self) -> None:
        text = self._header.text()
        if text == self._written:
            return
        try:
            table_header.write(self._path, text)
            self._written = text
        except OSError as error:  # forwarding is worth more than what comes after it
            log.error("connections will not be kept", reason=f"cannot write {self._path}: {error.strerror}")
            self._written = ""
            with suppress(OSError):
                self._path.unlink(missing_ok=True)
            table_memory.remove(self._run_dir)
