"""What a log, a trace, a sample or a system means: findings with evidence."""
