"""The rules, one file per topic; each is a pure function with a decorator."""
