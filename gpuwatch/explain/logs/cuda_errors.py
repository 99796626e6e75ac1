"""CUDA's error codes, in the messages of any framework.

Sources: ``CUresult`` of the driver API (cuda.h) and ``cudaError_t`` of the runtime (driver_types.h), which share their
numbers since CUDA 10.1; before, the runtime had its own below 100. The texts are those of cudaGetErrorString.
Programs print the name, the text or the number: any of them is recognized. HIP has the runtime's names and texts.
"""

from __future__ import annotations

import re

import msgspec


class CudaError(msgspec.Struct, frozen=True):
    """One of CUDA's errors."""

    topic: str
    """A topic of :mod:`gpuwatch.explain.logs.message_topics`."""
    numbers: tuple[int, ...]
    """The current number, then the runtime's before CUDA 10.1."""
    names: tuple[str, ...]
    """In the driver API and the runtime, in lower case."""
    text: str
    """The beginning of cudaGetErrorString's text, in lower case."""
    unambiguous: bool = True
    """Whether the text is enough in a line that does not mention CUDA."""


OUT_OF_MEMORY = "memory.oom"
"""Handled by the parsers of allocator messages, which read the numbers around it."""

TABLE: tuple[CudaError, ...] = (
    CudaError(OUT_OF_MEMORY, (2,), ("out_of_memory", "memoryallocation"), "out of memory", False),
    CudaError("ended.not-initialized", (3,), ("not_initialized", "initializationerror"), "initialization error", False),
    CudaError("driver.bad-state", (34,), ("stub_library", "stublibrary"), "cuda driver is a stub library"),
    CudaError("driver.too-old", (35,), ("insufficientdriver",), "cuda driver version is insufficient for cuda runtime"),
    CudaError("driver.too-old", (36,), ("callrequiresnewerdriver",), "api call is not supported in the installed cuda"),
    CudaError("mode.exclusive", (46,), ("device_unavailable", "devicesunavailable", "deviceunavailable"),
              "cuda-capable device(s) is/are busy or unavailable"),
    CudaError("mode.exclusive", (), (), "all cuda-capable devices are busy or unavailable"),
    CudaError("visibility.none-available", (100, 38), ("no_device", "nodevice"), "no cuda-capable device is detected"),
    CudaError("visibility.bad-ordinal", (101, 10), ("invalid_device", "invaliddevice"), "invalid device ordinal"),
    CudaError("build.gpu-unsupported", (200, 47), ("invalid_image", "invalidkernelimage"),
              "device kernel image is invalid"),
    CudaError("build.gpu-unsupported", (209, 48), ("no_binary_for_gpu", "nokernelimagefordevice"),
              "no kernel image is available for execution"),
    CudaError("build.gpu-unsupported", (98, 8), ("invaliddevicefunction",), "invalid device function", False),
    CudaError("hardware.fault", (214, 39), ("ecc_uncorrectable", "eccuncorrectable"), "uncorrectable ecc error"),
    CudaError("build.gpu-unsupported", (218,), ("invalid_ptx", "invalidptx"), "a ptx jit compilation failed"),
    CudaError("hardware.fault", (220,), ("nvlink_uncorrectable", "nvlinkuncorrectable"), "uncorrectable nvlink error"),
    CudaError("cuda.libraries-missing", (221,), ("jit_compiler_not_found", "jitcompilernotfound"),
              "ptx jit compiler library not found"),
    CudaError("driver.too-old", (222,), ("unsupported_ptx_version", "unsupportedptxversion"),
              "the provided ptx was compiled with an unsupported"),
    CudaError("cuda.version-mismatch", (302,), ("shared_object_symbol_not_found", "sharedobjectsymbolnotfound"),
              "shared object symbol not found"),
    CudaError("driver.bad-state", (304,), ("operating_system", "operatingsystem"),
              "os call failed or operation not supported on this os"),
    CudaError("ended.kernel", (700, 77), ("illegal_address", "illegaladdress"),
              "an illegal memory access was encountered"),
    CudaError("ended.launch", (701, 7), ("launch_out_of_resources", "launchoutofresources"),
              "too many resources requested for launch"),
    CudaError("ended.watchdog", (702, 6), ("launch_timeout", "launchtimeout"), "the launch timed out and was"),
    CudaError("ended.assert", (710, 59), ("assert",), "device-side assert triggered"),
    CudaError("ended.kernel", (714, 72), ("hardware_stack_error", "hardwarestackerror"), "hardware stack error", False),
    CudaError("ended.kernel", (715, 73), ("illegal_instruction", "illegalinstruction"),
              "an illegal instruction was encountered"),
    CudaError("ended.kernel", (716, 74), ("misaligned_address", "misalignedaddress"), "misaligned address", False),
    CudaError("ended.kernel", (717, 75), ("invalid_address_space", "invalidaddressspace"),
              "operation not supported on global/shared address space"),
    CudaError("ended.kernel", (718, 76), ("invalid_pc", "invalidpc"), "invalid program counter", False),
    CudaError("ended.kernel", (719,), ("launch_failed", "launchfailure"), "unspecified launch failure"),
    CudaError("driver.bad-state", (802,), ("system_not_ready", "systemnotready"), "system not yet initialized"),
    CudaError("driver.mismatch", (803,), ("system_driver_mismatch", "systemdrivermismatch"),
              "system has unsupported display driver"),
    CudaError("driver.mismatch", (804,), ("compat_not_supported_on_device", "compatnotsupportedondevice"),
              "forward compatibility was attempted on non supported"),
    CudaError("driver.bad-state", (805,), ("mps_connection_failed", "mpsconnectionfailed"),
              "mps client failed to connect"),
    CudaError("driver.bad-state", (806,), ("mps_rpc_failure", "mpsrpcfailure"), "mps client encountered an rpc"),
    CudaError("driver.bad-state", (807,), ("mps_server_not_ready", "mpsservernotready"), "mps server is not ready"),
    CudaError("driver.bad-state", (999, 30), ("unknown",), "unknown error", False),
)  # fmt: skip


def _full_names(name: str) -> tuple[str, ...]:
    return f"cuda_error_{name}", f"cudaerror{name}", f"hiperror{name.replace('_', '')}"


_BY_NAME = {full: entry for entry in TABLE for name in entry.names for full in _full_names(name)}
_OTHER = CudaError("cuda.other-error", (), (), "")
"""A number that is not in the table."""
_BY_NUMBER = {number: entry for entry in TABLE for number in entry.numbers}
_UNAMBIGUOUS = tuple(entry for entry in TABLE if entry.unambiguous)

_NAME = re.compile(r"\bcuda_error_[a-z_]{1,60}|\b(?:cuda|hip)error[a-z]{1,60}")
# "CUDA error: TEXT", "failed to initialize CUDA: TEXT", "(30 vs. 0)  TEXT", "CUDA failed with error TEXT".
_AFTER_CUDA = (
    r"(?:(?:cuda|\bcudart|\bhip)\w{0,40}\b(?:[^.\n]|\.\w){0,60}?(?:error|fail|exception|check|:)[^\n]{0,80}?"
    r"[ :'\"(<\])]"
    r"|cuda ?success \(\d{1,3} vs\. 0\) {0,4})"
)
_TEXTS = tuple(
    (entry.text, re.compile(_AFTER_CUDA + re.escape(entry.text)), entry) for entry in TABLE if not entry.unambiguous
)
_NUMBER = re.compile(
    r"cuda ?(?:runtime|driver|rt)?[ _]?(?:api )?(?:error|failure|err|status)(?: code)?[ :#=(]{0,3}(\d{1,3})\b(?![.\d])"
    r"|cuda initialization failure with error:? (\d{1,3})"
    r"|== cuda ?success \((\d{1,3}) vs\. 0\)"
    r"|thcudacheck fail file=\S{1,200} line=\d{1,6} error=(\d{1,3}) "
    r"|\[(\d{1,3})\] call to cu[a-z]"
    r"|(?:cudart|cuda driver library|cuda) init(?:ialization)? failure: ?(\d{1,3})\b"
    r"|cudagetdevicecount\b[^\n]{0,160}\berror (\d{1,3}):"
    r"|cuda driver library failed to get device context (\d{1,3})"  # Ollama
    r"|\bcuda[a-z]{3,40} returned (\d{1,3})\b"
)
_REPORT = re.compile(r"error|fail|exception|unable|cannot|could not|check|returned|assert|terminat")


def errors(text: str) -> list[CudaError]:
    """The CUDA errors in ``text``, which is in lower case with plain quotes."""
    found = [entry for entry in _UNAMBIGUOUS if entry.text in text]
    if "cud" not in text and "hip" not in text:
        # "THCudaCheck", "CUDA error", "cudart" and all names contain one.
        return found
    if "cuda_error_" in text or "cudaerror" in text or "hiperror" in text:
        found += [entry for name in _NAME.findall(text) if (entry := _BY_NAME.get(name)) is not None]
    if found:
        return found
    found = [entry for piece, pattern, entry in _TEXTS if piece in text and pattern.search(text)]
    if not found and _REPORT.search(text) and (match := _NUMBER.search(text)) is not None:
        number = next(int(group) for group in match.groups() if group is not None)
        return [_BY_NUMBER.get(number, _OTHER)]
    return found


def topics(text: str) -> list[str]:
    """The topics of the CUDA errors in ``text``; see :func:`errors`."""
    return [entry.topic for entry in errors(text)]


def number(text: str) -> int | None:
    """The current number of the first CUDA error in ``text``, in upper or lower case."""
    return next((entry.numbers[0] for entry in errors(text.lower()) if entry.numbers), None)
