"""One gpuwatch command on each node of a cluster: launchers, what comes home, and the odd node out."""
