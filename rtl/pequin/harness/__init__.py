"""Test harness hardware: plays streams from RAM images and records them, without Python."""
