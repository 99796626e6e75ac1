"""The doctor: facts of the system, the environment and the framework in, checks and one primary cause out."""
