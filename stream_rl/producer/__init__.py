"""Rolls out groups: generator and environment workers behind one lease loop."""
