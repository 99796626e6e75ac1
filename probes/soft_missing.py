"""Ask for a GPU that does not exist, with soft placement: TensorFlow moves the op and says nothing.

Soft placement is TensorFlow's default since 2.0. The op runs on a device that exists, and no line of
the log tells that another one was asked for.
"""

import _gpuwatch_probe as gpuwatch_probe

CONFIG = {
    "name": "soft-missing",
    "title": "A missing device, soft placement",
    "group": "placement",
    "framework": "tensorflow",
    "workload": "matmul",
    "verdict": "fallback",
}


def configure(tf, probe):
    tf.config.set_soft_device_placement(True)

    probe.setting("soft placement", asked=True, effective=tf.config.get_soft_device_placement())


def work(tf, probe):
    device = probe.options["missing_device"]
    probe.setting("device", asked=device)
    probe.run(tf, device)


if __name__ == "__main__":
    gpuwatch_probe.main(CONFIG, configure, work)
