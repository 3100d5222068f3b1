"""BGP speakers: what announces and withdraws addresses, behind one small interface."""

from __future__ import annotations

from controller.config_sections import Bgp
from controller.rundir import RunDir
from controller.speakers.exabgp import ExabgpSpeaker
from controller.speakers.none import NoSpeaker
from controller.speakers.speaker import Speaker


def make_speaker(bgp: Bgp, run_dir: RunDir) -> Speaker:
    """The speaker that the configuration asks for."""
    return NoSpeaker(run_dir) if bgp.speaker == "none" else ExabgpSpeaker(bgp, run_dir)
