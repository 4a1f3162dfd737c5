"""One HBM4 pseudo-channel: controller, device timing, ECC and backing store."""
