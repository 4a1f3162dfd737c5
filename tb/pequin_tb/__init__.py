"""Pequin's testbenches: cocotb drivers, monitors, scoreboards and test modules."""
