"""What masking is measured by: a corpus of secrets and of innocents."""
