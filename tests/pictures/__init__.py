"""The pictures of the README, made from simulated GPUs, real programs and real probe runs."""
