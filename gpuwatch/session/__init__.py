"""A watched machine without a user interface: shared by the dashboard and the commands."""
