"""What leaves gpuwatch: reports, exports, metrics for Prometheus, tools for assistants."""
