"""Simulated GPUs: C libraries with the real ABIs over one shared state, and their loader."""
