"""Memory growth on one GPU of several: ValueError.

TensorFlow refuses growth that differs between the GPUs that it uses, and does so late, when the
devices start. Set it in a loop over all of them, or hide the others first.
"""

import _gpuwatch_probe as gpuwatch_probe

CONFIG = {
    "name": "mixed-growth",
    "title": "Memory growth on one GPU of several",
    "group": "memory",
    "framework": "tensorflow",
    "workload": "matmul",
    "verdict": "ok",
    "gpus": 2,
}


def configure(tf, probe):
    first, *others = tf.config.list_physical_devices("GPU")
    tf.config.experimental.set_memory_growth(first, True)

    probe.setting("memory growth", asked={first.name: True, **{gpu.name: False for gpu in others}})
    try:
        tf.config.list_logical_devices()  # or any op
    except ValueError as error:
        probe.error(error, expected=True)
    else:
        probe.did_not_fail("memory growth on %s alone was accepted" % first.name)
    # What the error asks for:
    for gpu in others:
        tf.config.experimental.set_memory_growth(gpu, True)


def work(tf, probe):
    probe.run(tf)


if __name__ == "__main__":
    gpuwatch_probe.main(CONFIG, configure, work)
