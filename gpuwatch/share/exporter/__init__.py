"""Metrics of this machine over HTTP, for Prometheus."""
