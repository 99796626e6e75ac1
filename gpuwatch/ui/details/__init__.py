"""Details as lines: one GPU, one process, a finding, missing readings, keys. Pure."""
