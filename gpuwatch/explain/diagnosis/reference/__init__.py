"""Reference tables: advice, cause pages, driver releases, CUDA libraries, compute capabilities."""
