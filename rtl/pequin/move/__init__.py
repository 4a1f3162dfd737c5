"""Moving beats from HBM: the stream engine, the weight FIFO and the DMA unit."""
