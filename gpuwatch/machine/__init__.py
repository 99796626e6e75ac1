"""One machine: its GPUs and processes read, collected in a process of its own, and kept."""
