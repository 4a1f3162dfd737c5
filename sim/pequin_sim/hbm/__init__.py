"""Characterization of the HBM channel: patterns, closed forms, traces and reports."""
