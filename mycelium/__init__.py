"""Mycelium: one learned model for any electrical distribution feeder."""
