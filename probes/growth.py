"""Memory growth: start small and take more when it is needed.

TensorFlow then holds what the work needs, and never gives it back before it ends. The limit stays
that of the default.
"""

import _gpuwatch_probe as gpuwatch_probe

CONFIG = {
    "name": "growth",
    "title": "Memory growth",
    "group": "memory",
    "framework": "tensorflow",
    "workload": "matmul",
    "verdict": "ok",
}


def configure(tf, probe):
    for gpu in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(gpu, True)

    granted = [tf.config.experimental.get_memory_growth(gpu) for gpu in tf.config.list_physical_devices("GPU")]
    probe.setting("memory growth", asked=True, effective=all(granted) if granted else None)


def work(tf, probe):
    probe.matmul(tf)


if __name__ == "__main__":
    gpuwatch_probe.main(CONFIG, configure, work)
