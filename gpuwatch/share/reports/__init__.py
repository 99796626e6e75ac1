"""Documents for people and programs, made from model data alone."""
