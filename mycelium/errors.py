"""Errors whose text is written for the person who gave us the input."""

from __future__ import annotations


class FeederError(Exception):
    """A feeder model cannot be used as it is.

    The message stands on its own, because the command line prints it and nothing else: it names the place
    (`file:line`, relative to the feeder's folder), the command or element, what was expected, and what to do.
    """
