"""Pequin's hardware: the compute-slice tile described in Amaranth."""
