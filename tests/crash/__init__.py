"""Crashes before and behind every I/O operation of every handler."""
