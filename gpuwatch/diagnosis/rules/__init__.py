"""The rules, one topic a file; each is a decorated pure function."""
