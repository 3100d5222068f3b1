"""What every section of the configuration file is."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A mapping of the file: immutable, and no key but its own."""

    model_config = ConfigDict(frozen=True, extra="forbid")
