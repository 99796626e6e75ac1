"""Many hosts on one screen: their data from a Prometheus server or over ssh, and what they add up to.

When a host is silent: `fleet/ssh_source.py` and `fleet/prometheus_hosts.py`.
"""
