"""Driving the vector unit: commands as words, scripts, and comparison with the golden model."""
