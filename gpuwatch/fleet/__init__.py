"""Many hosts on one screen: their data from a Prometheus server or over ssh, and what they add up to."""
