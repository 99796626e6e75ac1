"""Out of memory: the numbers of a failure, who held the memory, and whether it grew."""
