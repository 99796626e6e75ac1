"""Which kernels this process has for an op: TensorFlow's registry. Standard library only, Python 3.7 or newer."""

import os
import sys


class Registry:
    """The kernels that are registered in this process (``TF_GetRegisteredKernelsForOp``)."""

    def __init__(self):
        self.known = {}
        self.cuda_build = None

    def of(self, op, types):
        """Whether an op has a GPU kernel here, a CUDA kernel, one for some type; and the type that rules it out.

        None if unknown; the type also where none does, or more than one.

        ``types``: the op's type attributes as TensorFlow's numbers. On GPUs that gpuwatch simulates as a plug-in, the
        CUDA kernels of a CUDA build have the device type GPU_CUDA.
        """
        found = self.known.get(op)
        if found is None:
            found = self.known[op] = self._ask(op)
        if found is False:
            return None, None, None, None
        gpu = _fit(found, types, ("GPU", "DEFAULT"))
        if "GPUWATCH_SIM_STATE" not in os.environ or "TF_PLUGGABLE_DEVICE_LIBRARY_PATH" not in os.environ:
            return gpu, gpu, _fit(found, {}, ("GPU", "DEFAULT")), _blamed(found, types, ("GPU", "DEFAULT"))
        if not self.cuda_build:
            return gpu, None, None, None
        cuda = ("GPU_CUDA", "DEFAULT")
        return gpu, _fit(found, types, cuda), _fit(found, {}, cuda), _blamed(found, types, cuda)

    def in_host_memory(self, op, argument, types):
        """Whether a GPU's kernel wants this input in host memory; True where there is none to ask.

        TensorFlow takes one for any device (DEFAULT) where there is none for the GPU (framework/op_kernel.cc).
        """
        self.of(op, types)
        fit = [one for one in self.known.get(op) or () if _allows(one, types)]
        found = [one for one in fit if one.device_type == "GPU"] or [one for one in fit if one.device_type == "DEFAULT"]
        return not found or any(argument in one.host_memory_arg for one in found)

    def cuda_types(self, op):
        """Names of the types for which TensorFlow has a CUDA kernel of an op; None in a CPU build."""
        from tensorflow.python.framework import dtypes

        found = self._ask(op)
        if not found or not self.cuda_build:
            return None
        types = set()
        for kernel in found:
            if kernel.device_type == "GPU_CUDA":
                allowed = [number for one in kernel.constraint for number in one.allowed_values.list.type]
                types.update([dtypes.as_dtype(number).name for number in allowed] or ["any type"])
        return sorted(types)

    def _ask(self, op):
        from tensorflow.python.framework import kernels

        if self.cuda_build is None:
            self.cuda_build = bool(sys.modules["tensorflow"].test.is_built_with_cuda())
        try:
            return list(kernels.get_registered_kernels_for_op(op).kernel)
        except Exception:  # no such op in this version
            return False


def _fit(kernels, types, devices):
    return any(_allows(kernel, types) for kernel in kernels if kernel.device_type in devices)


def _blamed(kernels, types, devices):
    """Name of the only type without which some kernel for these devices would fit."""
    if _fit(kernels, types, devices):
        return None
    others = ({name: number for name, number in types.items() if name != left} for left in types)
    alone = [left for left, rest in zip(types, others) if _fit(kernels, rest, devices)]  # noqa: B905  (Python 3.7)
    if len({types[name] for name in alone}) != 1:
        return None
    from tensorflow.python.framework import dtypes

    return dtypes.as_dtype(types[alone[0]]).name


def _allows(kernel, types):
    for constraint in kernel.constraint:
        wanted = types.get(constraint.name)
        if wanted is not None and wanted not in constraint.allowed_values.list.type:
            return False
    return True


def types_of(attributes):
    """Type attributes of an eager op (numbers or DType) or a NodeDef (AttrValue), as TensorFlow's numbers."""
    found = {}
    for name in attributes:
        value = attributes[name]
        number = getattr(value, "type", value)  # AttrValue
        number = getattr(number, "as_datatype_enum", number)  # DType
        if isinstance(number, int) and not isinstance(number, bool) and number > 0:
            found[name.decode() if isinstance(name, bytes) else name] = number
    return found


def held_type(attrs):
    """The type of a variable's value, from the op's attribute."""
    for name, value in pairs(attrs):
        if name in ("dtype", b"dtype"):
            from tensorflow.python.framework import dtypes

            return dtypes.as_dtype(value).name
    return None


def node_type(op, attributes):
    """The type of a node's first output, or of the variable that it makes or changes; None if it has none."""
    from tensorflow.python.framework import dtypes, op_def_registry

    definition = op_def_registry.get(op)
    outputs = definition.output_arg if definition is not None else ()
    number = outputs[0].type if outputs else 0
    if outputs and outputs[0].type_attr in attributes:
        number = attributes[outputs[0].type_attr].type
    if number in (0, dtypes.resource.as_datatype_enum):
        held = "T" if op.startswith("Resource") and "dtype" not in attributes else "dtype"
        number = attributes[held].type if held in attributes else 0
    return dtypes.as_dtype(number).name if number else None


def pairs(attrs):
    """Pairs of an op callback's attributes, which alternate names and values."""
    return [(attrs[at], attrs[at + 1]) for at in range(0, len(attrs) - 1, 2)]
