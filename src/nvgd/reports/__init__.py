"""A run on one page that needs nothing else: no network, no other file."""

from nvgd.reports.frames import Frames
from nvgd.reports.page import write_report

__all__ = ["Frames", "write_report"]
