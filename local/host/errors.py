"""The one error of the host: the function app, or what it needs, is wrong."""

from __future__ import annotations


class HostError(Exception):
    """The function app can't be run as it stands; the message names the function and what is wrong with it."""
