"""gpuwatch: watch NVIDIA GPUs and explain what TensorFlow and PyTorch do on them."""

__version__ = "0.1.0"
