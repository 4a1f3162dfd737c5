"""Checking the fp32 units: operands and results are images of RAMs around the hardware."""
