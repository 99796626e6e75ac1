"""Which kernels this process has for an op: TensorFlow's registry. Standard library only, Python 3.7 or newer."""

import os
import sys


class Registry:
    """The kernels that are registered in this process (``TF_GetRegisteredKernelsForOp``)."""

    def __init__(self):
        self.kernels_by_op = {}
        self.cuda_build = None

    def of(self, op, types):
        """Whether an op has a GPU kernel here, a CUDA kernel, one for some type; and the type that rules it out.

        None if unknown; the type also where none does, or more than one.

        ``types``: the op's type attributes as TensorFlow's numbers. On GPUs that gpuwatch simulates as a plug-in, the
        CUDA kernels of a CUDA build have the device type GPU_CUDA.
        """
        kernels = self.kernels_by_op.get(op)
        if kernels is None:
            kernels = self.kernels_by_op[op] = self._ask(op)
        if kernels is False:
            return None, None, None, None
        gpu = _has_fitting_kernel(kernels, types, ("GPU", "DEFAULT"))
        if "GPUWATCH_SIM_STATE" not in os.environ or "TF_PLUGGABLE_DEVICE_LIBRARY_PATH" not in os.environ:
            return (
                gpu,
                gpu,
                _has_fitting_kernel(kernels, {}, ("GPU", "DEFAULT")),
                _excluding_type(kernels, types, ("GPU", "DEFAULT")),
            )
        if not self.cuda_build:
            return gpu, None, None, None
        cuda = ("GPU_CUDA", "DEFAULT")
        return (
            gpu,
            _has_fitting_kernel(kernels, types, cuda),
            _has_fitting_kernel(kernels, {}, cuda),
            _excluding_type(kernels, types, cuda),
        )

    def in_host_memory(self, op, argument, types):
        """Whether a GPU's kernel wants this input in host memory; True where there is none to ask.

        TensorFlow takes one for any device (DEFAULT) where there is none for the GPU (framework/op_kernel.cc).
        """
        self.of(op, types)
        fitting = [kernel for kernel in self.kernels_by_op.get(op) or () if _fits(kernel, types)]
        gpu_kernels = [kernel for kernel in fitting if kernel.device_type == "GPU"] or [
            kernel for kernel in fitting if kernel.device_type == "DEFAULT"
        ]
        return not gpu_kernels or any(argument in kernel.host_memory_arg for kernel in gpu_kernels)

    def cuda_types(self, op):
        """Names of the types for which TensorFlow has a CUDA kernel of an op; None in a CPU build."""
        from tensorflow.python.framework import dtypes

        kernels = self._ask(op)
        if not kernels or not self.cuda_build:
            return None
        types = set()
        for kernel in kernels:
            if kernel.device_type == "GPU_CUDA":
                allowed = [number for constraint in kernel.constraint for number in constraint.allowed_values.list.type]
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


def _has_fitting_kernel(kernels, types, devices):
    return any(_fits(kernel, types) for kernel in kernels if kernel.device_type in devices)


def _excluding_type(kernels, types, devices):
    """Name of the only type without which some kernel for these devices would fit."""
    if _has_fitting_kernel(kernels, types, devices):
        return None
    type_sets = ({name: number for name, number in types.items() if name != name_left_out} for name_left_out in types)
    pairs = zip(types, type_sets)  # noqa: B905  (Python 3.7)
    sufficient_names = [
        name for name, remaining_types in pairs if _has_fitting_kernel(kernels, remaining_types, devices)
    ]
    if len({types[name] for name in sufficient_names}) != 1:
        return None
    from tensorflow.python.framework import dtypes

    return dtypes.as_dtype(types[sufficient_names[0]]).name


def _fits(kernel, types):
    for constraint in kernel.constraint:
        type_number = types.get(constraint.name)
        if type_number is not None and type_number not in constraint.allowed_values.list.type:
            return False
    return True


def types_of(attributes):
    """Type attributes of an eager op (numbers or DType) or a NodeDef (AttrValue), as TensorFlow's numbers."""
    type_numbers = {}
    for name in attributes:
        value = attributes[name]
        number = getattr(value, "type", value)  # AttrValue
        number = getattr(number, "as_datatype_enum", number)  # DType
        if isinstance(number, int) and not isinstance(number, bool) and number > 0:
            type_numbers[name.decode() if isinstance(name, bytes) else name] = number
    return type_numbers


def variable_type(attrs):
    """The type of a variable's value, from the op's attribute."""
    for name, value in attribute_pairs(attrs):
        if name in ("dtype", b"dtype"):
            from tensorflow.python.framework import dtypes

            return dtypes.as_dtype(value).name
    return None


def node_type(op, attributes):
    """The type of a node's first output, or of the variable that it makes or changes; None if it has none."""
    from tensorflow.python.framework import dtypes, op_def_registry

    definition = op_def_registry.get(op)
    outputs = definition.output_arg if definition is not None else ()
    type_number = outputs[0].type if outputs else 0
    if outputs and outputs[0].type_attr in attributes:
        type_number = attributes[outputs[0].type_attr].type
    if type_number in (0, dtypes.resource.as_datatype_enum):
        attribute = "T" if op.startswith("Resource") and "dtype" not in attributes else "dtype"
        type_number = attributes[attribute].type if attribute in attributes else 0
    return dtypes.as_dtype(type_number).name if type_number else None


def attribute_pairs(attrs):
    """Pairs of an op callback's attributes, which alternate names and values."""
    return [(attrs[index], attrs[index + 1]) for index in range(0, len(attrs) - 1, 2)]
