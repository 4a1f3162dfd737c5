"""Programs on the simulated tile, compared with the golden machine."""
