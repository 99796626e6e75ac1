"""Reference tables: advice, cause pages, what fits a CUDA version."""
