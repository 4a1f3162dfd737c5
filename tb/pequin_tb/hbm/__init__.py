"""Testbench of the HBM channel: player, timing monitor, scoreboard."""
