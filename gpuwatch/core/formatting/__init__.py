"""Text for screens and files: units, durations, shortening. Of gpuwatch it imports only other modules of core."""
