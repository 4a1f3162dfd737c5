"""Running the hardware: designs, payload images, and the MAC array as a function."""
