"""The MAC array: a stream of MXFP4 or MXINT8 weight beats times stationary activation columns."""
