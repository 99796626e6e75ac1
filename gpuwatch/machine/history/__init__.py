"""History of a machine: samples of the last hour, metrics, events, energy and saved runs."""
