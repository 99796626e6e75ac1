"""One gpuwatch command on each node of a cluster: launchers, the replies, and which nodes differ from the others."""
