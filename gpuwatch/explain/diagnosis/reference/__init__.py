"""What is looked up: advice, cause pages, releases of drivers, CUDA libraries, compute capabilities."""
