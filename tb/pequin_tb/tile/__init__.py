"""Testbenches of the tile."""
