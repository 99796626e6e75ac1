"""A small memory limit that works on every kind of device, and tensors to fill it."""

from __future__ import annotations

import os

import _gpuwatch_nvml as nvml
import _gpuwatch_probe as gpuwatch_probe

ROW_BYTES = 4 << 10


def limit_memory(tf, probe):
    """Limits the first device to ``memory_limit`` MB: by a logical device, or the closest equivalent."""
    limit = probe.options["memory_limit"]
    gpus = tf.config.list_physical_devices("GPU")
    if not gpus:
        # oneDNN's allocator for host memory is a BFC allocator too, and has its own limit.
        os.environ["TF_MKL_ALLOC_MAX_BYTES"] = str(limit << 20)
        probe.setting("TF_MKL_ALLOC_MAX_BYTES", asked=limit << 20, effective=limit << 20, note="no GPU: host memory")
        return
    tf.config.set_visible_devices(gpus[:1], "GPU")
    if not probe.undivided(tf):
        tf.config.set_logical_device_configuration(gpus[0], [tf.config.LogicalDeviceConfiguration(memory_limit=limit)])
        probe.setting("memory_limit", asked=limit, effective=limit)
        return
    # A PluggableDevice ignores memory_limit, but not the fraction of a TF1 session, and the first use of a device
    # decides for the whole process.
    machine_gpus = nvml.gpus()
    fraction = (limit << 20) / machine_gpus[0][1] if machine_gpus else 0.05
    options = tf.compat.v1.GPUOptions(per_process_gpu_memory_fraction=fraction, visible_device_list="0")
    config = tf.compat.v1.ConfigProto(gpu_options=options)
    gpuwatch_probe.also_for_plugins(config)
    with tf.Graph().as_default(), tf.compat.v1.Session(config=config) as session:
        granted_bytes = [device.memory_limit_bytes for device in session.list_devices() if device.device_type == "GPU"]
    probe.setting(
        "per_process_gpu_memory_fraction",
        asked=fraction,
        effective="%d MB" % (granted_bytes[0] >> 20) if granted_bytes else None,
        note="for %d MB: TensorFlow ignores memory_limit on a PluggableDevice" % limit,
    )


def block(tf, rows):
    """A new tensor of ``rows`` x 4 KiB on the device that TensorFlow chooses."""
    row = tf.zeros([1, ROW_BYTES // 4])
    return tf.add(row, tf.zeros([rows, 1]))  # by broadcasting
