"""Control of the tile: sequencer, program memory, command queues, semaphores."""
