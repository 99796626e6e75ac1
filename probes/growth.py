"""Memory growth: start small and take more when it is needed.

TensorFlow then holds what the work needs, and never gives it back before it ends. The limit stays
that of the default. It must be set alike on every GPU, before the first of them is used.
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
    gpus = tf.config.list_physical_devices("GPU")
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)

    granted = [tf.config.experimental.get_memory_growth(gpu) for gpu in gpus]
    probe.setting("memory growth", asked=True, effective=all(granted) if granted else None)


def work(tf, probe):
    probe.run(tf)


if __name__ == "__main__":
    gpuwatch_probe.main(CONFIG, configure, work)
