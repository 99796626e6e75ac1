# ruff: noqa: E501 - texts as they are printed
"""What the last lines tell: a log is healthy if its program was at work, and never if they report a failure."""

from __future__ import annotations

import pytest

from gpuwatch.explain.diagnosis.explain_log import explain
from gpuwatch.explain.logs import log_ending
from gpuwatch.explain.logs.log_facts import FAILURE, WORK
from tests.every import every

WHERE = [f"No failure in the log; {where}" for where in ("last line", "near its end", "before its last lines")]
_NOISE = [
    "2026-05-04 10:11:12.1: E external/local_xla/xla/stream_executor/cuda/cuda_fft.cc:467] Unable to register cuFFT"
    " factory: Attempting to register factory for plugin cuFFT when one has already been registered",
    "2026-05-04 10:11:12.2: I tensorflow/core/platform/cpu_feature_guard.cc:182] This TensorFlow binary is optimized to"
    " use available CPU instructions in performance-critical operations.",
]
_STUB = "2026-05-04 10:11:12.3: I external/local_tsl/tsl/cuda/cudart_stub.cc:31] Could not find cuda drivers on your"
_STUB += " machine, GPU will not be used."
_MAPPED = (
    "2026-05-04 10:11:12.131415: I tensorflow/core/common_runtime/gpu/gpu_device.cc:1929] Created device /job:localhost"
    "/replica:0/task:0/device:GPU:0 with 9805 MB memory:  -> device: 0, name: Fake RTX 0, pci bus id: 0000:01:00.0"
)

AT_WORK = {
    "vLLM": "(APIServer pid=7) INFO 05-04 10:11:12 [loggers.py:271] Engine 000: Avg prompt throughput: 3.1 tokens/s, Avg"
    " generation throughput: 71.5 tokens/s, Running: 2 reqs, Waiting: 0 reqs, GPU KV cache usage: 4.9%",
    "Uvicorn": "INFO:     Application startup complete.",
    "SGLang": "[2026-05-04 10:11:12 TP0] Decode batch, #running-req: 3, #token: 119, token usage: 0.01, gen throughput"
    " (token/s): 135.11, #queue-req: 0",
    "TGI": '2026-05-04T10:11:12.8Z  INFO generate{total_time="1.2s" inference_time="1.1s"}: text_generation_router::server:'
    " router/src/server.rs:290: Success",
    "Ollama": '[GIN] 2026/05/04 - 10:11:12 | 200 |    4.6953s |    192.0.2.17 | POST     "/api/generate"',
    "llama.cpp": "slot print_timing: id  0 | task 4 | prompt eval time =   95.1 ms /  51 tokens ( 1.9 ms per token, 536.2"
    " tokens per second)",
    "ComfyUI": "100%|██████████| 20/20 [00:04<00:00,  4.32it/s]\nPrompt executed in 12.91 seconds",
    "Trainer": "{'train_runtime': 92.4, 'train_samples_per_second': 20.7, 'train_loss': 2.1, 'epoch': 1.0}",
    "Ultralytics": "     38/89     5.62G   0.02079  0.008967  0.000934         6       640",
    "Lightning": "`Trainer.fit` stopped: `max_epochs=3` reached.",
    "MMEngine": "2026/05/04 10:11:12 - mmengine - INFO - Epoch(train)  [8][  50/269]  lr: 3.9e-04  eta: 4:57:00",
    "MXNet": "INFO:root:Epoch[1] Batch [100]  Speed: 12488.17 samples/sec     Train-accuracy=0.954219",
    "loop": "step 670, loss = 2.94 (177.0 examples/sec; 0.723 sec/batch)",
    "rejected request": 'INFO:     127.0.0.1:4711 - "POST /v1/completions HTTP/1.1" 400 Bad Request',
    "ended by SIGTERM": "(EngineCore pid=9) INFO 05-04 10:11:12 [core.py:13] [shutdown] EngineCore: trigger received"
    " signal=SIGTERM\nINFO:     Finished server process [7]",
    "table of results": "epoch 3: loss 0.2\n| Number of failed attacks:     | 263    |\n| Failed runs | 12.5% |",
    "Portuguese": "2025-01-08 16:30:31,730 - INFO - Treinamento conclu\u00eddo com sucesso",
    "Spanish": "Entrenamiento finalizado con \u00e9xito",
    "German": "Das Training wurde erfolgreich abgeschlossen",
    "Russian": "\u041e\u0431\u0443\u0447\u0435\u043d\u0438\u0435 \u0443\u0441\u043f\u0435\u0448\u043d\u043e \u0437\u0430\u0432\u0435\u0440\u0448\u0435\u043d\u043e",
    "Chinese": "\u8bad\u7ec3\u5df2\u5b8c\u6210\uff0c\u6a21\u578b\u5df2\u4fdd\u5b58",
    "Japanese": "\u5b66\u7fd2\u304c\u5b8c\u4e86\u3057\u307e\u3057\u305f",
    "molecular dynamics": "Execution rate for this run:   2631.57  steps per second.\nDaily rate:    454.7  ns per day.",
    "plain columns": "457 train 7.026358\n458 train 7.086724",
    "HTCondor": "\t(1) Normal termination (return value 0)\n\t\tUsr 0 04:02:18, Sys 0 01:01:01  -  Run Remote Usage\n...",
    "text that is worked on": "['A method for "
    + "data that are large and of many kinds, " * 6
    + "fails: the least squares error is too large']\ndone",
    "long progress": "\r".join(f"{at}%|#| {at}/100 [00:0{at % 10}<00:01, 3.1s/it]" for at in range(101)),
    "count of failures": "step 7 loss 0.3\nretries: 0, failed: 0, errors=0",
    "measure": "epoch 3: mean squared error 0.021, word error rate 0.11",
}


@every(AT_WORK)
def test_a_program_at_work_is_healthy(program: str) -> None:
    for before in ([], _NOISE, [*_NOISE, _STUB]):
        found = explain([*before, *AT_WORK[program].split("\n")])
        assert [(one.id, one.severity) for one in found.findings] == [("healthy", "info")], before
        assert found.findings[0].title.partition(": ")[0] in WHERE


def test_only_the_very_last_line_is_called_so() -> None:
    assert (
        explain(["step 3: loss 0.2", "x = 3", ""]).findings[0].title
        == "No failure in the log; near its end: step 3: loss 0.2"
    )
    for line in ("step 3: loss 0.2", "step 2: loss 0.3\rstep 3: loss 0.2"):
        assert explain(["x = 3", line, ""]).findings[0].title == "No failure in the log; last line: step 3: loss 0.2"


FAILED = (
    "2026-05-04 10:11:12.1: W tensorflow/core/framework/op_kernel.cc:1655] OP_REQUIRES failed at reader.cc:98 : Not found",
    "2026-05-04 10:11:12.1: E tensorflow/core/grappler/optimizers/meta_optimizer.cc:828] layout failed: wrong size",
    "node7:4112:4388 [2] misc/socket.cc:483 NCCL WARN socketStartConnect: Connect to 192.0.2.7<17943> ended",
    "GPU0: device error while running kernel, giving up",
    "node7:4112:4388 [2] misc/socket.cc:51 NCCL WARN socketPollConnect: refused, exceeded error retry count (35)",
    "launcher: task train-7 failed",
    "2026-05-04 10:11:12,100 ERROR Could not predict: sample 12 has 3 dims",
    "[2026-05-04 10:11:41] launch of train.sh failed on node n7",
    'time=2026-05-04T10:11:12Z level=ERROR source=sched.go:455 msg="error loading llama server"',
    '{"level": "error", "msg": "request 7 of the loader is gone"}',
    "E0504 10:11:12.131415    4711 server.cc:12] model store is empty",
)


@every(FAILED)
def test_last_lines_that_report_a_failure_are_quoted(line: str) -> None:
    """Also below notes that show no work; not above lines that do."""
    for after in ([], ["Cleaning up.", "bye"]):
        found = explain([_MAPPED, AT_WORK["loop"], line, *after]).findings[0]
        assert (found.id, found.severity) == ("unknown", "warning")
        assert line in found.evidence[0]
        assert found.action
    assert explain([_MAPPED, line, AT_WORK["loop"]]).primary == "healthy"


@pytest.mark.parametrize("report", ["Crash report written to /tmp/7.json", "error log saved in /tmp/7.log"])
def test_a_report_of_a_crash_is_no_result(report: str) -> None:
    assert _tells("step 7", "the job failed", report) == FAILURE
    assert _tells("step 7", "Writing the error log to /tmp/7.log") == FAILURE
    assert _tells("step 7", "the job failed", report.split(" ", 1)[1]) == WORK
    assert _tells("prediction errors saved to errors.csv") == WORK


def test_tensorflow_at_work_without_a_gpu_may_have_used_the_cpu() -> None:
    bar = "100/100 ━━━━━━━━━━━━━━━━━━━━ 1s 3ms/step - loss: 0.5"
    assert "may have run on the CPU" in explain([*_NOISE, bar]).findings[0].title


def test_memory_that_ran_out_is_no_failure_if_a_retry_worked() -> None:
    full = "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 5174.72 MiB on device 1: cudaMalloc failed: out of memory"
    retry = "sched_reserve: compute buffer allocation failed, retrying without pipeline parallelism"
    works = "main: server is listening on http://127.0.0.1:8080"
    assert explain([full, retry, works]).primary == "healthy"
    assert explain([full, retry]).primary == "memory.model-too-large"
    assert explain([full, works]).primary == "memory.model-too-large"
    assert explain([full, retry, works, full.replace("5174", "9000"), "Aborted"]).primary == "memory.model-too-large"


def test_a_rank_that_failed_while_another_worked_on() -> None:
    lost = "[rank1]: E0504 10:11:12.131415    4711 store.cc:12] store gone"
    found = explain([f"[rank0]: {AT_WORK['loop']}", lost, f"[rank0]: {AT_WORK['loop']}"]).findings[0]
    assert found.id == "unknown"
    assert "store gone" in found.evidence[0]
    assert explain([lost, *[f"[rank0]: {AT_WORK['loop']}"] * 20]).primary == "healthy"


def _tells(*lines: str) -> str:
    return log_ending.kind_and_line(lines)[0]


def test_a_person_who_ends_it_is_no_failure() -> None:
    words = "[2025-02-03 10:11:12.131] Cannot reach the registry."
    for interrupt in ("KeyboardInterrupt", "[2025-02-03 10:11:12.135] KeyboardInterrupt: "):
        assert _tells("step 3", words, interrupt) == WORK
        assert _tells("2025-02-03 10:11:12 - train - ERROR - the device does not answer", interrupt) == FAILURE
    assert _tells("the worker got a KeyboardInterrupt", words) == FAILURE


_OTHERS = [
    "Feb 03 10:11:12 desk cups[71]: started",
    "Feb 03 10:11:13 desk NetworkManager[72]: up",
    "Feb 03 10:11:14 desk gdm[73]: session",
]


def test_of_a_machines_journal_only_what_has_to_do_with_gpus_counts() -> None:
    web = "Feb 03 10:12:00 desk systemd[1]: Failed to start A Web Server."
    manager = "Feb 03 10:12:00 desk systemd[1]: Failed to start NVIDIA fabric manager service."
    driver = "Feb 03 10:12:00 desk kernel: NVRM: loading failed"
    assert _tells(*_OTHERS, web) == ""
    assert _tells(*_OTHERS, manager) == _tells(*_OTHERS, driver) == FAILURE
    assert _tells("Feb 03 10:12:00 desk systemd[1]: Failed to start My training.") == FAILURE, "a unit's own journal"


def test_of_a_kernels_log_only_what_has_to_do_with_gpus_counts() -> None:
    other = "[58720.637310] binder: send failed reply for transaction 6869080 to 117719:117781"
    assert _tells("[58720.637297] binder: release 117826", other) == ""
    assert _tells("[58720.637297] NVRM: RmInitAdapter failed! (0x22:0x56:894)", other) == FAILURE
    assert _tells("starting", other) == FAILURE, "a program's own line"


_DMESG = [f"[   {at}.637310] usb 1-{at}: new device" for at in range(20, 60)]
_XORG = [f"[   {at}.630] (II) event{at}: device added" for at in range(20, 60)]


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (_DMESG, "No failure in the log"),
        (
            [*_DMESG, "[   61.123456] nouveau 0000:01:00.0: enabling device (0004 -> 0007)", *_DMESG],
            "No failure in the log",
        ),
        (
            [*_DMESG, "[   61.123456] [drm:nv [nvidia_drm]] *ERROR* Failed to grab modeset ownership"],
            "No failure in the log",
        ),
        ([*_DMESG, "[   61.123456] NVRM: RmInitAdapter failed! (0x24:0x65:1436)"], "could not start the GPU"),
        ([*_DMESG, "[   61.123456] [drm:i915_reset] *ERROR* Failed to reset chip."], "Intel GPU (driver i915) hung"),
        ([*_XORG, '[    61.543] (EE) Failed to open authorization file "/run/a"'], "No failure in the log"),
        ([*_XORG, "[    61.543] (EE) no screens found"], "X server (Xorg) failed"),
        (
            ["[ 9.1] (EE) Failed to initialize GLX extension (Compatible NVIDIA X driver not found)", *_XORG],
            "its screen runs on another driver",
        ),
    ],
)
def test_logs_of_kernels_and_x_servers(lines: list[str], said: str) -> None:
    assert said in explain(lines).findings[0].title


_IGNORED = "UserWarning: Failed to load image Python extension: 'a/image.so: undefined symbol: _ZNK3c107SymBool1'"
_CUDNN = "[05/04/2026-00:34:53] [TRT] [W] TensorRT was linked against cuDNN 8.4.1 but loaded cuDNN 8.4.0"
_NVML = "n1:71:74 [0] misc/nvmlwrap.cc:100 NCCL WARN nvmlInit_v2() failed: Driver/library version mismatch"
_OS_CALL = "a/torch/cuda/__init__.py:174: UserWarning: CUDA initialization: Unexpected error from cudaGetDeviceCount()."
_OS_CALL += " Error 304: OS call failed or operation not supported on this OS"
_BNB = "a.py:34: UserWarning: The installed version of bitsandbytes was compiled without GPU support."


@every(
    [
        (_IGNORED, "epoch 3: loss 0.2", "healthy"),
        (_IGNORED, "Aborted", "unknown"),
        (_IGNORED.replace("UserWarning: Failed to load image Python extension", "ImportError"), "bye", "unknown"),
        (_CUDNN, "epoch 3: loss 0.2", "healthy"),
        (_CUDNN, "E0504 10:11:12.131415    4711 engine.cc:12] no engine", "cuda.version-mismatch"),
        (_CUDNN.replace("[W]", "[E]"), "epoch 3: loss 0.2", "cuda.version-mismatch"),
        (f"n1:71:71 [0] NCCL INFO Using network Socket\n{_NVML}", "epoch 3: loss 0.2", "healthy"),
        (_NVML, "epoch 3: loss 0.2", "driver.mismatch"),
        (_OS_CALL, "Successfully built fastnet", "healthy"),
        (_OS_CALL, "epoch 3: loss 0.2", "driver.bad-state"),
        (_BNB, "Total time: 45.97s", "healthy"),
        (_BNB, "RuntimeError: no 8-bit optimizer", "build.cpu-only"),
    ]
)
def test_a_warning_is_no_failure_of_a_program_that_its_consequence_did_not_reach(
    warning: str, end: str, told: str
) -> None:
    assert explain([*warning.split("\n"), end]).primary == told


def test_errors_of_a_server_that_was_told_to_end_and_of_pythons_own_callbacks() -> None:
    dead = ["Traceback (most recent call last):", '  File "/a/x.py", line 7, in <module>', "    main()"]
    dead += ["vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue."]
    stopped = (
        "(EngineCore pid=9) INFO 05-04 10:11:12 [core.py:13] [shutdown] EngineCore: trigger received signal=SIGTERM"
    )
    end = "INFO:     Application shutdown complete."
    assert explain([stopped, *dead, end]).primary == "healthy"
    assert explain([*dead, end]).primary == "unknown"
    reset = [*dead[:3], "ConnectionResetError: [WinError 10054] closed"]
    server = "To see the GUI go to: http://127.0.0.1:8188"
    callback = "Exception in callback {}._call_connection_lost(None)"
    *own, other = map(callback.format, ("_ProactorBasePipeTransport", "RequestHandler", "Client"))
    assert all(explain([server, line, *reset]).primary == "healthy" for line in own)
    assert "task of the program" in explain([server, other, *reset]).findings[0].title


_COLLECTED = """\
==================================== ERRORS ====================================
_________________ ERROR collecting tests/test_a.py __________________
Traceback:
tests/test_a.py:5: in <module>
    from mmdet.models import build
E   ModuleNotFoundError: No module named 'mmdet'
=========================== short test summary info ============================"""
_FAILED_TEST = """\
    def test_close(dtype):
>       torch.testing.assert_close(y, ref)
E       AssertionError: Tensor-likes are not close!
E
E       Mismatched elements: 3 / 100 (3.0%)

tests/test_ops.py:12: AssertionError
=========================== short test summary info ============================"""


def test_of_pytest_its_marked_errors_count_not_its_summary() -> None:
    summary = [f"ERROR tests/test_{name}.py" for name in range(40)]
    found = explain([*_COLLECTED.splitlines(), *summary, "===== 40 errors in 3.13s ====="]).findings[0]
    assert "mmdet is not installed" in found.title
    failed = [f"FAILED tests/test_ops.py::test_close[{name}] - AssertionError: Ten..." for name in range(40)]
    found = explain([*_FAILED_TEST.splitlines(), *failed, "===== 40 failed, 2 passed in 3.13s ====="]).findings[0]
    assert [*found.evidence] == ["AssertionError: Tensor-likes are not close!"]


_AT_WORK = ["step 10 loss: 0.51 acc: 0.70", "step 20 loss: 0.50 acc: 0.71", "step 30 loss: 0.49 acc: 0.72"]


@every(
    [
        ("Cancelled by user", "stopped from outside"),
        ("Training stopped manually", "stopped from outside"),
        ("Caught signal SIGUSR1", "stopped from outside"),
        ("Interrupted! Saving the model...", "interrupted (Ctrl+C, SIGINT)"),
        ("Interrupt received, stopping...", "interrupted (Ctrl+C, SIGINT)"),
        ("Received signal 2, exiting", "interrupted (Ctrl+C, SIGINT)"),
        ("Received signal 15", "ended by SIGTERM"),
        ("Got SIGTERM, exiting", "ended by SIGTERM"),
        ("Terminated: 15", "ended by SIGTERM"),
        ("[1]+  Terminated              python train.py", "ended by SIGTERM"),
        ("[1]+  Killed                  nohup python train.py", "SIGKILL"),
        ("\u5df2\u7ec8\u6b62", "ended by SIGTERM"),
        ("\u5df2\u653e\u5f03 (\u6838\u5fc3\u5df2\u8f6c\u50a8)", "crashed with a signal"),
        ("Command terminated by signal 9", "SIGKILL"),
        ("Command exited with non-zero status 1", "A process of the job failed"),
        ("srun: forcing job termination", "cancel"),
        ("Loss is NaN, stopping training", "not a number"),
        *(
            (line, "report a failure")
            for line in (
                "Hangup", "Alarm clock", "OOM", "CUDA OOM", "Preempted", "Spot instance is being reclaimed",
                "Session terminated, terminating shell... ...terminated.", "Your runtime has been disconnected",
                "Job 123 cancelled", "Lost connection to worker 3", "worker 3 disappeared", "Diverged", "Oops",
                "Something went wrong", "max retries exceeded", "checksum mismatch", "wrong number of arguments",
                "mpirun: killing job...", "Out of time", "Wall time limit reached",
                "fish: Job 1, 'python train.py' terminated by signal SIGKILL (Forced quit)", "heartbeat missed",
            )
        ),
    ],
)  # fmt: skip
def test_an_end_in_whatever_words_is_no_healthy_one(end: str, told: str) -> None:
    found = explain([*_AT_WORK, end])
    assert found.primary != "healthy"
    assert told in found.findings[0].title
    passed = explain([end, *_AT_WORK, "step 40 loss: 0.48 acc: 0.73"])
    assert told not in found.findings[0].title or "report" not in told or passed.primary == "healthy"


@every(
    [
        "oom: 0",
        "ooms 0.0 | wps 3.1",
        "cancelled: 0",
        "no OOM",
        "preempted=0",
        "loss_nan_count 0",
        "user: request 3",
        "Usage: 3.2 GiB",
        "Total reclaimed space: 1.2GB",
        "rejected = 8500",
        "Sequence group 7 is preempted by mode RECOMPUTE",
    ]
)
def test_counts_of_what_did_not_happen_are_no_end(line: str) -> None:
    assert explain([*_AT_WORK, line]).primary == "healthy"


def test_a_warning_of_python_alone_is_no_doubt() -> None:
    warned = [
        "/opt/PIL/TiffImagePlugin.py:802: UserWarning: Corrupt EXIF data. Expecting 4 bytes.",
        "  warnings.warn(x)",
    ]
    assert explain(warned * 3).primary == "healthy"
    assert explain([line.replace("UserWarning: ", "ERROR ") for line in warned]).primary != "healthy"


def test_a_start_that_was_interrupted_counts_not_the_refused_one_before() -> None:
    refused = ["usage: train.py [-h] [--workers N]", "train.py: error: argument --workers: expected one argument"]
    frames = ["Traceback (most recent call last):", '  File "/w/other.py", line 5, in <module>', "    import lavis"]
    assert "--workers" in explain([*refused, *frames, "ValueError: no"]).findings[0].title
    assert "was interrupted" in explain([*refused, *frames, "KeyboardInterrupt"]).findings[0].title


@pytest.mark.parametrize(
    ("row", "told"), [("|      |     |   ERR! |", "healthy"), ("| ERR!  75C |  | Default |", "hardware.fault")]
)
def test_an_unread_mig_mode_is_no_fault(row: str, told: str) -> None:
    head = "| NVIDIA-SMI 460.32.03    Driver Version: 460.32.03    CUDA Version: 11.2     |"
    assert explain([head, "|   0  Fake T4            Off  | 00000000:00:04.0 Off |     0 |", row]).primary == told


def test_words_that_show_no_work() -> None:
    assert _tells("[rank: 1] Child process with PID 71 ended") == ""
    assert _tells("copying a param with shape torch.Size([10, 4]) from the file") == ""
    assert _tells("link/ether b4:7a:f1:8c:86:a6 brd ff:ff") == ""
    assert _tells("Mean Reciprocal Rank: 0.9") == WORK


def test_noise_of_a_desktop_and_of_a_disk() -> None:
    stream = "2024-01-12 10:38:50.486622: E external/local_xla/xla/x.h:177] SetPriority unimplemented for this stream."
    assert _tells(stream) == ""
    assert _tells("(nvidia-settings:71): Gdk-CRITICAL **: 10:11:12: gdk_window: assertion failed") == ""
    assert _tells("ERROR: pip's dependency resolver does not currently take into account all packages") == ""
    assert _tells("Fontconfig error: Cannot load default config file") == ""
    assert _tells("(raylet) [2025-02-03 10:11:12,1 E 1 2] monitor.cc:111: /tmp/ray is over 95% full, capacity: 1") == ""
    assert _tells("(raylet) [2025-02-03 10:11:12,1 E 1 2] monitor.cc:99: the store failed") == FAILURE


def test_programs_that_did_their_work() -> None:
    for line in ("All tests completed!", "total images/sec: 211.80", "`Trainer.fit` stopped: `max_epochs=4` reached."):
        assert _tells(line) == WORK
        assert log_ending.reports_completion(line) or "images" in line


@every(
    [
        "Setting up libnvidia-gl-570:amd64 (570.86-0ubuntu1) ...",
        "DKMS: install completed.",
        "[INFO]: Installed: /usr/local/cuda-12.4/bin/nvcc",
        "I0504 10:11:12.131415 3850 rpc.c:135] driver rpc service terminated successfully",
        "Successfully installed torch-2.7.1",
        "Result for PPO_game_1a2b3_00000:",
        "Number of trials: 3/8 (1 PENDING, 2 RUNNING)",
        "The Jupyter Notebook is running at: http://localhost:8888/",
        "Status: Downloaded newer image for registry.example/tensorflow:24.02",
        "Self CUDA time total: 2.143ms",
        "|task_a|      3|flexible|    10|exact_match|↑  |0.4822|±  |0.0138|",
        "Mean Recall @10: 0.71",
        "torch.Size([4, 18, 18])",
        "[STATUS]  SUCCESS, scores.parquet is ready",
        "deviceQuery, CUDA Driver = CUDART, CUDA Driver Version = 12.4, NumDevs = 1, Device = Fake RTX 0",
        "│ NVITOP 1.6.1       Driver Version: 575.57      CUDA Driver Version: 12.9 │",
        "# Avg bus bandwidth    : 183.4",
        "===== 12 passed, 1 skipped in 3.20s =====",
        "Saving model checkpoint to out/checkpoint-500",
        "Model saved to models/best.pt",
        "[5/4/26-10:11:12] [I] &&&& PASSED TensorRT.trtexec # trtexec --onnx=a.onnx",
        "#15 naming to docker.io/library/x:latest done",
        "[2026-05-04 10:11:12,131] [INFO] [launch.py:351:main] Process 4711 exits successfully.",
        "llama_perf_context_print:       total time =    1234.56 ms /   123 tokens",
        "10,0.31,0.42",
        "[  PASSED  ] 12 tests.",
        "[  12.345678] [drm] Initialized nvidia-drm 0.0.0 20160202 for 0000:01:00.0 on minor 0",
    ]
)
def test_installers_and_tools_that_did_their_work(line: str) -> None:
    assert explain(["reading lists", line]).primary == "healthy"


def test_an_installer_that_ended_in_an_error() -> None:
    failed = "dpkg: error processing package nvidia-dkms-570 (--configure):"
    assert explain(["Setting up libnvidia-gl-570:amd64 (570.86-0ubuntu1) ...", failed]).primary == "unknown"
    assert explain(["Number of trials: 3/8 (1 ERROR, 2 RUNNING)"]).primary == "unknown"


def test_a_program_that_was_interrupted_is_not_called_healthy_unless_it_served() -> None:
    trace = ["Traceback (most recent call last):", '  File "a.py", line 3, in <module>', "    step()"]
    stopped = explain(["step 3: loss 0.2", *trace, "KeyboardInterrupt"])
    assert stopped.primary == "unknown"
    assert "interrupted (Ctrl+C" in stopped.findings[0].title
    assert "SIGTERM" in explain(["loading", *trace, "KeyboardInterrupt: terminated"]).findings[0].title
    serves = ["INFO:     Application startup complete.", "step 3: loss 0.2", *trace, "KeyboardInterrupt"]
    assert explain(serves).primary == "healthy"


@pytest.mark.parametrize(
    "line",
    [
        "a/trainer/call.py:54: UserWarning: Detected KeyboardInterrupt, attempting graceful shutdown...",
        "[2026-05-04 10:11:12] WARNING: caught SIGINT, stopping after this batch",
        "Training was interrupted by the user",
        "Ctrl+C pressed: saving and leaving",
        "Exiting from training early",
        "CRITICAL Keyboard interrupt. Leaving now.",
    ],
)
def test_an_interrupt_that_is_told_in_words(line: str) -> None:
    work = "step 3: loss 0.2"
    for after in ([], ["Checkpoint saved to a.pt"], ["wandb: Run summary:", "wandb: loss 0.2"]):
        found = explain([work, line, *after]).findings[0]
        assert (found.id, "interrupted (Ctrl+C" in found.title) == ("unknown", True), after
    assert explain([work, line, *[f"step {number}: loss 0.1" for number in range(4, 9)]]).primary == "healthy"
    assert explain(["Press Ctrl+C to stop", work]).primary == "healthy"
    assert explain([work, "Training finished or interrupted."]).primary == "healthy"


def test_an_error_that_follows_from_an_interrupt_is_not_the_end() -> None:
    told, raised = (
        "CRITICAL Keyboard interrupt. Leaving now.",
        [_TRACE, '  File "a.py", line 3, in f', "KeyError: 'sum'"],
    )
    assert "interrupted (Ctrl+C" in explain(["step 3: loss 0.2", told, *raised]).findings[0].title
    assert "KeyError" in explain(["step 3: loss 0.2", *raised, told]).findings[0].title
    carried = explain(["step 3: loss 0.2", *raised[:2], "RuntimeError: KeyboardInterrupt:", "0"])
    assert "interrupted (Ctrl+C" in carried.findings[0].title


def test_a_traceback_of_a_notebook_that_is_cut_off_names_its_error() -> None:
    head = "ValueError                                Traceback (most recent call last)"
    cut = explain([head.replace("ValueError", "KeyboardInterrupt"), "<ipython-input-3-1> in <module>", "----> 1 f(x)"])
    assert "interrupted (Ctrl+C" in cut.findings[0].title
    assert (
        "of ValueError, before" in explain([head, "<ipython-input-3-1> in <module>", "----> 1 f(x)"]).findings[0].title
    )


_TRACE = "Traceback (most recent call last):"
_UP = ["[10:11] To see the GUI go to: http://127.0.0.1:8188", "[10:12] got prompt of a node"]


def test_a_server_that_says_more_after_an_error_works() -> None:
    failed, more = "[10:13] ERROR: installing nodes is not allowed here", "[10:14] reading the list of models [DONE]"
    assert explain([*_UP, failed, more]).primary == "healthy"
    assert explain([*_UP, failed]).primary == "unknown"
    assert explain([failed, more]).primary == "unknown"
    assert explain([*_UP, "[10:13] ERROR: giving up", more]).primary == "unknown"
    assert explain([*_UP, "[10:13] CRITICAL: no workers", more]).primary == "unknown"
    board = ["TensorBoard 2.17.0 at http://localhost:6006/ (Press CTRL+C to quit)"]
    bad = "E0720 15:17:10.579709 139921503282944 _internal.py:225] 127.0.0.1 - - code 400, message Bad request syntax"
    assert explain([*board, bad, "TensorBoard caught SIGTERM; exiting..."]).primary == "healthy"


def test_requests_that_a_server_refused_are_told_beside_its_work() -> None:
    works = "srv  log_server_r: request: POST /v1/chat/completions 127.0.0.1 400"
    long = "srv send_error: task id = 7, error: request (9000 tokens) exceeds the available context size (4096 tokens)"
    found = explain([long, works])
    assert found.primary == "healthy"
    assert "longer than the context" in found.findings[1].title
    raised = explain([_TRACE, "ValueError: This model's maximum context length is 96 tokens, but you requested 97"])
    assert ["A request is longer" in one.title for one in raised.findings] == [True]


def test_warnings_of_a_framework_show_what_the_log_is_of() -> None:
    warning = "/opt/lib/python3.12/site-packages/{}/a.py:7: FutureWarning: use b"
    for package in ("torch/x", "requests"):
        assert "its last lines are warnings" in explain([warning.format(package), "  return b()"]).findings[0].title
    imported = [*_NOISE, "Some weights of RobertaModel were not initialized from the checkpoint"]
    assert "TensorFlow may have" not in explain(imported).findings[0].title
    assert "TensorFlow may have" in explain([*_NOISE, imported[-1].replace("Rob", "TFRob")]).findings[0].title


def test_frames_that_torch_compile_counts_are_no_steps() -> None:
    assert _tells("W0106 17:32:30.193000 21587 torch/_dynamo/convert_frame.py:964] [0/8] To diagnose it, see") == ""
    assert _tells("train.py:12 [ 3/8] ok") == WORK


def test_xformers_that_does_not_fit_is_no_failure_of_a_program_that_works() -> None:
    line = "WARNING[XFORMERS]: xFormers can't load C++/CUDA extensions. xFormers was built for:"
    assert explain([line, "To see the GUI go to: http://127.0.0.1:8188"]).primary == "healthy"
    assert explain([line, "Traceback (most recent call last):"]).primary == "cuda.version-mismatch"


def test_a_transfer_that_failed_is_told_before_the_wait_for_it() -> None:
    lost = "n1:7:9 [0] NCCL WARN NET/IB : Got completion from peer 192.0.2.1<4711> with error 12, opcode 0, len 0"
    wait = "[Rank 3] Some NCCL operations have failed or timed out. Due to the asynchronous nature of CUDA kernels,"
    assert "network between two nodes" in explain([lost, wait]).findings[0].title


@pytest.mark.parametrize(
    "end", ["Done!", "All done.", "real\t1m2.345s", "Elapsed time: 12.3 s", "2026-05-04 10:11:12 Done"]
)
def test_what_a_script_says_at_its_end_hides_no_failure(end: str) -> None:
    assert explain(["import of libraries", end]).primary == "healthy"
    assert explain(["import of libraries", "Error: could not read the data", end]).primary == "unknown"


def test_a_server_that_was_sent_sigterm_did_not_fail_by_itself() -> None:
    """SGLang's children end with it, and it says that they crashed."""
    told = explain(
        [
            "[2026-08-02 00:09:40] Decode batch, #running-req: 1, #full token: 0, cuda graph: True",
            "[2026-08-02 00:17:43] SIGTERM received. signum=None frame=None. Draining requests and shutting down...",
            "[2026-08-02 00:17:43] Subprocess detokenizer (pid=313) crashed with exit code -15. Triggering SIGQUIT.",
            "[2026-08-02 00:17:43] SIGQUIT received. signum=None, frame=None. It usually means one child failed.",
        ]
    )
    assert "ended by SIGTERM" in told.findings[0].title


_CUDART = "W tensorflow/stream_executor/platform/default/dso_loader.cc:64] Could not load dynamic library"
_CUDART += " 'libcudart.so.11.0'; dlerror: libcudart.so.11.0: cannot open shared object file: No such file or directory"


@pytest.mark.parametrize(
    "used", ["", "I tensorflow/core/platform/cpu_feature_guard.cc:151] This TensorFlow binary is optimized"]
)
def test_a_library_that_an_unused_tensorflow_missed(used: str) -> None:
    """Weights & Biases and transformers import it."""
    end = "wandb: Synced 6 W&B file(s), 0 media file(s)"
    assert explain([_CUDART, used, end]).primary == ("cuda.libraries-missing" if used else "healthy")
    assert explain([_CUDART, used]).primary == "cuda.libraries-missing"


@pytest.mark.parametrize(
    "line",
    [
        "fitloss: 5.68 | rankloss: 0.44",
        "INFO:root:Loss 26.2141",
        'Saved graph data (before projection) to "graphs_2.pkl"',
        "Done generating graph data",
        "2600/3000 prompts  (0.04 prompts/s)",
        "Requirement already satisfied: six>=1.5 in /opt/lib/python3.9/site-packages (from x)",
        "Submitted batch job 23765086",
    ],
)
def test_other_forms_of_work(line: str) -> None:
    assert _tells("begin", line) == WORK


def test_a_loss_that_is_not_a_number() -> None:
    row = (
        "        2/2     1.86G       nan       nan       nan       113       640: 100%|##########| 16/16 [00:23<00:00]"
    )
    asked = [
        "step: 100 total_loss: nan obj_cls: nan loc: 2.1",
        "INFO:tensorflow:global_step/sec: 2.1",
        "so i think error generated",
    ]
    assert "not a number" in explain([*_STEPS, *asked]).findings[0].title
    for line in (
        "epoch 4: mse: nan",
        "iter 20 | objective nan",
        "epoch 4: loss nan",
        "{'loss': nan, 'epoch': 3}",
        "step 7 train_loss=NaN",
        row,
    ):
        assert "not a number" in explain(["epoch 3: loss 0.2", line]).findings[0].title
    for line in ("epoch 4: best_loss inf", "epoch 4: loss 0.2 nan 0", "loading nanogpt: loss 0.1"):
        assert explain([line]).primary == "healthy", line


def test_an_error_in_a_request_that_a_server_answered_did_not_end_it() -> None:
    raised = [_TRACE, '  File "/a/app.py", line 28, in hook', "    text = data['text']", "KeyError: 'text'"]
    answer = '10.0.0.1 - - [23/Jan/2024 02:32:37] "\x1b[35m\x1b[1mPOST /hook HTTP/1.1\x1b[0m" 500 -'
    assert "ended in KeyError" in explain([*raised, answer]).findings[0].title
    assert explain(raised).findings[0].title.startswith("It ended in KeyError")


_PLAIN = [f"[mixer] pass {i}: gain={i}" for i in range(20)]


@every(
    [
        (_PLAIN, "healthy", "last line: [mixer] pass 19: gain=19"),
        (["Once upon a time"] * 20, "unknown", "Nothing recognized"),
        ([f"  Box {i}   0.{i}17  8.{i}" for i in range(9)] + ["Mixed the paint on drum 0"], "healthy", "last line: Mixed the paint"),
        (['Moved the file "/a/b/drum.dat"', "Reading /a/b/c.dat", "-" * 20, "12 of 12 drums"], "healthy", "last line: 12 of 12"),
        ([f"  Box {i}   0.{i}17" for i in range(9)] + ["Can not open file:", "drum.dat", *["a word"] * 20], "unknown", "a failure: Can not"),
        ([f"  Box {i}   0.{i}17" for i in range(9)] + ["#0  0x00007f1 in mix (a=0x1)", "#1  0x00007f2 in main ()"], "unknown",
         "Nothing recognized"),
        ([f"  Box {i}   0.{i}17" for i in range(9)] + ["usage: mix.py [-h] --drum N"], "unknown", "Nothing recognized"),
        ([f'[GIN] 2026/06/06 - 11:22:0{i} | 500 |  5m1s | 10.0.0.4 | POST "/api/chat"' for i in range(4)], "unknown",
         "Nothing recognized"),
        (["import os", "class A:", "    def f(self, x):", "        self.x = f(x, 3)", "        return self.x", "a = A()"] * 4,
         "unknown", "Nothing recognized"),
        (["drum:", "  size: 3", "  colour: red", "steps:", "  - mix: 3", "  - pour: 4", "after:", "  - wash: 1"], "unknown",
         "Nothing recognized"),
        (["NOTE: 14.3 % performance was lost since drums waited", *[f"  Box {i}   0.{i}17" for i in range(9)]], "healthy",
         "No failure in the log"),
        (["+ cp a b", "cp: cannot stat 'a': No such file or directory", "+ true", "INFO:    Creating SIF file..."], "healthy",
         "No failure in the log"),
        (["WARNING worker.py:7 -- A worker died or was killed", "while executing a task"], "unknown", "Ray worker process died"),
        (["[  +0.000004]  __schedule+0x23d/0x590", "[  +0.000037]  uvm_ioctl+0x13e0/0x16f0 [nvidia_uvm]"], "unknown",
         "call trace through NVIDIA's driver"),
        (["<4>[  9.100000] Modules linked in: nvidia(OE)", "<0>[  9.234567] Kernel panic - not syncing: Fatal exception"],
         "unknown", "kernel crashed"),
        (["[   41.5] BUG: unable to handle page fault for address: ffffa1b2", "[   41.6] Oops: 0002 [#1] SMP"], "unknown",
         "kernel crashed"),
        (["61:00.0 3D controller: NVIDIA Corporation Device 2331", "\t\tCESta:  RxErr- BadTLP- BadDLLP+ Timeout- AdvNonFatalErr-",
          "\t\tAERCap: First Error Pointer: 04, ECRCGenCap+ ECRCGenEn-"],
         "unknown", "Nothing recognized"),
        (["# HELP smi_remapped_rows_failure Remapping failure occurred", 'smi_remapped_rows_failure{uuid="GPU-1"} 0'], "unknown",
         "Nothing recognized"),
        (["index", "memory.used", "clocks.sm", "ecc.errors.uncorrected.aggregate.total", "remapped_rows.failure"], "healthy",
         "No failure in the log"),
        (["[2026-01-02][INFO] - Maximum training time of 3 h exceeded. Exiting."], "healthy", "own"),
        (["==> dkms install wl/6.30", "Error! Bad return status for module build on kernel: 6.1",
          "Consult /var/lib/dkms/wl/6.30/build/make.log for more information."], "unknown", "not NVIDIA's: wl"),
        (["bin D:\\a\\site-packages\\bitsandbytes\\libbitsandbytes_cpu.so", "CUDA SETUP: WARNING! libcuda.so not found! Do"
          " you have a CUDA driver installed?", "CUDA_SETUP: WARNING! libcudart.so not found in any environmental path."],
         "cuda.libraries-missing", ""),
        (["Loading checkpoint shards:  50%|5 | 1/2", "A decoder-only architecture is being used, but right-padding"],
         "healthy", "does not say on which device"),
        (["reading", "State: COMPLETED (exit code 0)", "Cores: 3", "CPU Efficiency: 40% of 01:00:00"], "healthy", "No failure"),
        (["Building DKMS module 'nvidia-9.9' for kernel-9... FAILED!", "for errors in the log file."], "driver.missing",
         "module could not be built"),
        (["ptxas /tmp/a.ptx, line 3; error   : Instruction 'wgmma.fence' not supported on .target 'sm_89'"],
         "build.gpu-unsupported", "cannot be compiled for it"),
        (["CUDA error: the resource allocation failed", "  current device: 0, in function handle", "a.cu:7: CUDA error"],
         "memory.masked", ""),
        (["a | INFO | main | args: 3", "a | ERROR | stderr | INFO:     Application startup complete."], "healthy", "No failure"),
        (["a | INFO | main | args: 3", "a | ERROR | stderr | ERROR:    it broke."], "unknown", "last lines report a failure"),
        (["To see the GUI go to: http://127.0.0.1:8188", "Prompt executed in 9.4 seconds", "[Meter ERROR] no battery here"],
         "healthy", "Prompt executed in 9.4"),
        (["To see the GUI go to: http://127.0.0.1:8188", "[Worker ERROR] no battery here"], "unknown", "report a failure"),
        (["epoch 2/9: loss 0.3", "/a/resource_tracker.py:2: UserWarning: resource_tracker: There appear to be 4 leaked"
          " semaphore objects to clean up at shutdown", "  warnings.warn("], "unknown", "in the middle of its work"),
        (["epoch 9/9: loss 0.3", "/a/resource_tracker.py:2: UserWarning: resource_tracker: There appear to be 4 leaked"
          " semaphore objects to clean up at shutdown", "  warnings.warn("], "healthy", "No failure in the log"),
        (["(APIServer pid=7) INFO 08-01 17:36:24 [a.py:2] non-default args: {'host': 'x'}",
          "(EngineCore pid=9) INFO 08-01 17:49:03 [a.py:3] torch.compile took 30.61 s in total"], "unknown",
         "before the server was ready"),
        (["(APIServer pid=7) INFO 08-01 17:36:24 [a.py:2] non-default args: {'host': 'x'}",
          "(APIServer pid=7) INFO 08-01 17:52:03 [a.py:3] Starting vLLM server on http://0.0.0.0:8000",
          "(APIServer pid=7) INFO 08-01 17:52:03 [a.py:3] Available routes are:"], "healthy", "No failure in the log"),
        (["[2026-08-01 21:51:16] server_args=ServerArgs(model_path='a/b')", "[2026-08-01 21:51:16] Load weight begin."],
         "unknown", "before the server was ready"),
        (["epoch 2/9: loss 0.3", "INFO communicating run to backend with 90.0 second timeout"], "healthy", "No failure in the log"),
        (["epoch 2/9: loss 0.3", "no answer from the server, 90.0 second timeout"], "unknown", "report a failure"),
        (["Error(s) in loading state_dict for Net:", "epoch 1: loss 0.3"], "unknown", "Weights from a checkpoint were rejected"),
        (["[skip] Failed to load a.pt: Attempting to deserialize object on CUDA device 7 but torch.cuda.device_count() is 6",
          "Saved summary results to: a.csv"], "healthy", "No failure in the log"),
        (["Failed to load a.pt: Attempting to deserialize object on CUDA device 7 but torch.cuda.device_count() is 6",
          "Saved summary results to: a.csv"], "visibility.bad-ordinal", ""),
        (["epoch 2/9: loss 0.3", "Main process received SIGTERM, exiting", *["a note"] * 20], "unknown", "ended by SIGTERM"),
        (["queue.pl: Error, job is gone, last line is 'validation loss at step 7: 6.8'"], "unknown", "a failure: queue.pl"),
        (["q.pl: job failed with status 139, log is in q.log"], "unknown", "SIGSEGV"),
        (["epoch 2/9: loss 0.3", "Connection to 10.0.0.4 closed by remote host."], "unknown", "ssh"),
        (["spool/job7/slurm_script: line 31:  6521 Killed singularity exec a.sif ./a"], "unknown", "killed by SIGKILL"),
        (["ERROR: The nvidia kernel module was not created."], "driver.missing", "could not be built"),
        (["Entra\u00eenement termin\u00e9."], "healthy", "No failure in the log"),
        (["reading", "me@host:~/a$ "], "healthy", "No failure in the log"),
        (["\u52a0\u8f7d\u5931\u8d25: a.pt"], "unknown", "last lines report a failure"),
        (["  Could NOT find CUDA (missing: CUDA_NVCC_EXECUTABLE)", "-- Configuring incomplete, errors occurred!"], "unknown",
         "CMake found no CUDA compiler"),
        (["| N/A 34C P8 | 0MiB / 3527MiB |      0%   E. Process |", "step 9: loss 0.3"], "healthy", "No failure in the log"),
        ([_TRACE, '  File "a.py", line 3, in run', "    x.save(f)", "KeyboardInterrupt", "saved state"], "unknown", "interrupted"),
        (["Exception in thread Thread-7 (plot):", _TRACE, '  File "a.py", line 3, in run', "    x.show()", "KeyError: 'x'",
          "epoch 4: loss 0.3"], "healthy", "No failure at its end, after the errors below"),
        (["ValueError: too few GPUs are balanced", "Received sigquit from a child process. The child failed.", "Killed"], "unknown",
         "the last error before is ValueError"),
    ],
)  # fmt: skip
def test_what_logs_of_other_kinds_tell_at_their_end(lines: list[str], primary: str, title: str) -> None:
    found = explain(lines)
    assert found.primary == primary
    assert title in found.findings[0].title


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("2024-08-23 16:43:47,854 [ERROR] Error plotting image", "though it logged Error plotting image"),
        ("11/14/2021 00:48:55 - ERROR - transformers.x -   Saving directory (./r) should be a directory", "though it"),
        ("2025-09-16 18:45:54 - __main__ - ERROR - Failed to load the codebook of Mimi", "though it logged"),
        ("2025-09-16 18:45:54 - __main__ - ERROR - Failed to fetch a.json, skipping it", "No failure in the log"),
        ("2025-09-16 18:45:54 - __main__ - WARNING - Error while downloading, trying again", "No failure in the log"),
    ],
)
def test_an_error_that_was_only_logged_is_told(line: str, told: str) -> None:
    steps = [f"2024-08-23 16:43:47,854 [INFO] epoch {number}: loss {1 / number:.4f}" for number in range(1, 40)]
    found = explain([*steps[:9], line, *steps[9:]])
    assert found.primary == "healthy"
    assert told in found.findings[0].title


_LOGGER = "2026-05-04 10:11:12,131 {:7} MainThread:4711 [setup.py:_flush():76] {}"


@pytest.mark.parametrize(
    ("level", "text", "primary"),
    [
        ("WARNING", "Could not save program above cwd: /a/train.py", "healthy"),
        ("INFO", "got exitcode: 1", "unknown"),
        ("ERROR", "Could not save program above cwd: /a/train.py", "unknown"),
    ],
)
def test_a_warning_before_notes_of_its_logger_is_no_doubt(level: str, text: str, primary: str) -> None:
    notes = [
        _LOGGER.format("INFO", text) for text in ("Loading settings", "starting backend", "telemetry", "atexit reg")
    ]
    assert explain([*notes, _LOGGER.format(level, text), *notes, *notes]).primary == primary
    assert explain([*notes, _LOGGER.format(level, text), notes[0]]).primary == "unknown"


_TEXT = """\
Known problems
==============

# If the screen stays black

The library does not work in the background, because the compositor
refuses to give it a surface when the window has no focus. You will
see this only with older versions of the system.

* Build the package from source if your distribution has no current one.
* Set the limit in the configuration file before you start the service.
* A failed import of the plug-in is harmless and can be ignored.

If that does not help, the service cannot perform this replacement.
"""


def test_a_text_that_people_wrote_reports_no_failure() -> None:
    found = explain(_TEXT.split("\n"))
    assert found.findings[0].title.startswith("Nothing recognized")
    printed = [f"epoch {number}: loss=0.{number} lr=0.1" for number in range(9)]
    lines = [*printed, *_TEXT.strip().split("\n")[-2:]]
    assert "last lines report a failure" in explain(lines).findings[0].title
    lines = [*_TEXT.split("\n"), "demo.cpp:12: error: the shader cannot be compiled"]
    assert "compiler rejected the code" in explain(lines).findings[0].title


_STEPS = [f"epoch {i} step {i * 100} loss {2.1 / i:.4f}" for i in range(1, 9)]


@every(
    [
        ["[FAIL] Metadata file not found: C:\\a b\\meta.json"],
        ["Ran 31 tests in 12.2s", "", "FAILED (errors=2)", "cleaning up", "done"],
        ["Ran 12 tests in 4.320s", "FAILED (failures=1, ", "errors=1)", "Model loaded."],
        ["EnforceNotMetTraceback (most recent call last)", "<ipython-input-2> in main(cuda)", "--> 209     main(True)"],
        ["-->209main(use_cuda=True)", "/a/site-packages/x.py in run(self)"],
        ["run a SUCCESS", "run b FAILED (rc=1)", "Wrote report.html"],
        ["\u2718 export did not work"],
        ["worker 3: rc=137", "worker 0: rc=0", "Total time: 812 s"],
        ["evaluation returned 3", "summary written to eval/summary.txt"],
        ["watchdog: no progress for 1800 s, trainer looks stuck", "stacks in /tmp/stacks.txt"],
        ["Erreur lors de l'enregistrement", "Fini"],
        ["It is just stuck on the last line above, I do not know why"],
    ]
)
def test_a_word_of_failure_near_the_end_is_never_healthy(end: list[str]) -> None:
    found = explain([*_STEPS, *end])
    assert found.primary != "healthy"
    assert any(line.strip() in found.findings[0].evidence[0] for line in end)
    assert found.findings[0].action


@pytest.mark.parametrize(
    "lines",
    [
        ["#  size  count  type  redop  time  algbw  busbw  error", "8  2  float  sum  12.1  0.0  0.0  0e+00"],
        ["config: {'on_error': 'raise', 'fail_fast': False}", "--timeout 600 --max-failures 3"],
        ["classes: ['ok', 'crash', 'error', 'timeout']", "writing log to train_error.log"],
        ["reconstruction error 0.0132", "Top-1 error: 23.1%", "TrainError: 0.08", "failure    0.91 0.93 0.92"],
        ["killed episodes: 0 | aborted episodes: 0", "Errors: 0", "Test passed: test_crash_recovery"],
        ["'the attempt failed as he could not swim' -> negative"],
        ["90%|### | 9/10 [24:32<02:42] You may observe unexpected behavior without a mask"],
        ["[Engine] stop-on-error-mode: off"],
    ],
)
def test_a_word_of_failure_in_a_name_a_measure_or_a_text_is_none(lines: list[str]) -> None:
    assert explain([*_STEPS, *lines]).primary == "healthy"


def test_a_loss_of_any_name_that_is_not_a_number() -> None:
    nan = "[Epoch 0][Batch 1], Speed: 24.2 samples/sec, CrossEntropy=29112.0, SmoothL1=nan"
    assert (
        "not a number" in explain([*_STEPS, nan, "[Epoch 0][Batch 2], Speed: 24.3 samples/sec, Cro"]).findings[0].title
    )
    assert explain([*_STEPS, nan, nan.replace("=nan", "=3.1")]).primary == "healthy"


def test_rows_of_numbers_are_work() -> None:
    for row in ("{} /data/train/a{}.jpg", "| value_{}_loss    | {}.3 |", "   0    41    60   {}   -   {}  279"):
        assert explain([row.format(i, i) for i in range(30)] + ["end"]).primary == "healthy"


def test_a_traceback_behind_the_echo_of_an_interrupt_is_its_own_wherever_it_is_cut() -> None:
    cut = ["epoch 1: loss 0.4", "^CTraceback (most recent call last):", '  File "a.py", line 3, in f', "    step()"]
    assert "interrupted" in explain(cut).findings[0].title
    assert "middle of a Python traceback" in explain([cut[0], cut[1][2:], *cut[2:]]).findings[0].title


def test_an_interrupt_outweighs_what_follows_from_it_and_a_probe_at_the_start() -> None:
    probe = (
        "I0103 20:06:16.161175 1399 xla_bridge.py:243] Unable to initialize backend 'gpu': NOT_FOUND: Could not find"
        ' registered platform with name: "cuda". Available platform names are: TPU'
    )
    stopped = [_TRACE, '  File "a.py", line 3, in run', "    x.wait()", "KeyboardInterrupt"]
    after = [
        "^CProcess Process-3:2:",
        _TRACE,
        "Error in atexit._run_exitfuncs:",
        '  File "/a/process.py", line 318, in _boot',
    ]
    assert "interrupted" in explain([probe, *_STEPS, *stopped, *after]).findings[0].title
    elastic = (
        "W0116 14:35:43.75 39 /a/elastic/agent/server/api.py:704] Received Signals.SIGINT death signal, shutting down"
    )
    assert "interrupted" in explain([*_STEPS, elastic, _TRACE, '  File "a.py", line 8, in <module>']).findings[0].title


def test_advice_on_what_is_deprecated_is_no_failure() -> None:
    """TensorFlow's module deprecation.py writes it into the log of each program that uses such a function."""
    log = [
        "WARNING:tensorflow:From /a/v2_compat.py:98: disable_resource_variables is deprecated and will be removed in a"
        " future version.",
        "Instructions for updating:",
        "non-resource variables are not supported in the long term",
    ]
    assert not log_ending.end_of(log).kind
    assert log_ending.end_of([*log[:1], *log[2:]]).kind == FAILURE


@pytest.mark.parametrize(
    ("lines", "title"),
    [
        ([*_STEPS, "Interrupt signal received, trying to exit gracefully."], "interrupted"),
        (
            ["Epoch 1:  26%|##6   | 1004/3861 [15:16<43:26,  1.10it/s]", "[rank: 1] Received SIGTERM: 15"]
            + ["Epoch 1:  26%|##6   | 1004/3861 [15:18<43:33,  1.09it/s]"] * 2,
            "ended by SIGTERM",
        ),
        (
            ["Epoch 1:  26%|##6   | 1004/3861 [15:16<43:26,  1.10it/s]", "[rank: 1] Received SIGTERM: 15"]
            + [f"Epoch 1:  26%|##6   | {at}/3861 [15:18<43:33,  1.09it/s]" for at in (1005, 1006)],
            "No failure in the log",
        ),
        (
            ["Loaded the model.", "head.weight True", "head.bias True", "Target 1 is out of bounds."],
            "outside the range of the classes",
        ),
    ],
)
def test_ends_that_a_program_tells_in_few_words(lines: list[str], title: str) -> None:
    assert title in explain(lines).findings[0].title


_TABLE = "+-------+---------+--------+"
_GMX = [
    "----------------------------",
    "Program gmx, VERSION 5.0.4",
    "Source code file: /a/gmxfio.c, line: 513",
    "",
    "Can not open file:",
    "md_st_2.tpr",
    "For more information and tips for troubleshooting",
    "----------------------------",
    "",
    '"A Quotation" (N. N.)',
]


@every(
    [
        (_GMX, "gmx stopped: Can not open file: md_st_2.tpr"),
        ([*_GMX, *_STEPS], "No failure in the log"),  # a later run
        (["-- Looking for x", "CMake Error at CMakeLists.txt:4 (file):", "  file STRINGS file \"/a/Ver.h\" cannot be", "  read.", "",
          "CMake Error at CMakeLists.txt:7 (string):", "  needs at least 5 arguments", "", "-- Configuring incomplete, errors occurred!"],
         'CMake could not configure the build: file STRINGS file "/a/Ver.h" cannot be read.'),
        ([_TABLE, "| Model | Version | Status |", _TABLE, "| enc | 1 | READY |", "| dec | 1 | UNAVAILABLE: Internal: no engine |", _TABLE],
         "could not load the model dec: Internal: no engine"),
        ([_TABLE, "| Model | Version | Status |", _TABLE, "| enc | 1 | READY |", _TABLE], "No failure in the log"),
        (["I0312 10:55:14.0 57 a.cc:1] unloaded", "error: creating server: Internal - failed to load all models"],
         "Triton server could not start: failed to load all models"),
        (["# server failed to start", "", "ann wrote", "```", "E0817 19:18:51.7 29 a.cc:1] cannot open b.plan", "```", "It crashed, any help?"],
         "cannot open b.plan"),
        (["h:7:8 [0] socket.cc:483 NCCL WARN socketStartConnect: Connect to 10.0.0.2<4> failed : Software caused connection abort",
          *[f"h:7:8 [0] NCCL INFO socket.cc:{i} -> 2" for i in range(7)], "h:7:8 [0] proxy.cc:1519 NCCL WARN Failed to execute operation Connect"],
         "could not connect to another rank: Connect to 10.0.0.2<4> failed : Software caused connection abort"),
        (["CUDA platform error: No compatible CUDA device is available", "", "OpenCL platform error: clCreateContext (-9999)"],
         "OpenMM cannot use CUDA: No compatible CUDA device"),
        (["RESOURCE_EXHAUSTED: Attempting to reserve 6.48G at the bottom of memory. That was not possible.", "Exception in device=TPU:4: RES"],
         "does not fit in the TPU's memory"),
        (["CUDA error !!!!! <out of memory> !!!!!", "at CUDA call error code: # 2402"], "Out of memory"),
        (["a.h(247): warning: statement is unreachable"], "Nothing recognized"),
        (["checked a: \u274c", "\u2705 saved to a.csv"], "No failure in the log"),
        (["NOTE: Error occurred during GPU detection:", "      no CUDA-capable device is detected", "1 GPU detected:", _TRACE,
          '  File "a.py", line 3, in f', "IOError: [Errno 2] No such file or directory: 'a.xvg'"], "A file or folder does not exist: a.xvg"),
        (["terminate called after throwing an instance of 'CUDA::error'", "  what():  /a/SimpleCudaMalloc_impl.hpp(42): error: out of memory"],
         "Out of memory"),
        (["terminate called after throwing an instance of 'a::Error'", "  what():  grid is empty: b.grid"],
         "A C++ exception was not caught: grid is empty: b.grid"),
        (["h:7:8 [0] socket.cc:441 NCCL WARN socketFinalizeAccept: wrong type 4 != 3"], "NCCL warns of an error: socketFinalizeAccept"),
        (["*** Process received signal ***", "Signal: Floating point exception (8)"], "SIGFPE"),
    ],
)  # fmt: skip
def test_the_line_that_tells_the_failure(lines: list[str], title: str) -> None:
    assert title in explain(lines).findings[0].title


@every(
    [
        ([_TRACE, '  File "a.py", line 3, in f', "FileExistsError: /b exists already. Use --overwrite (or -f) to write there. Bye"],
         "Do what its message says: Use --overwrite (or -f) to write there."),
        (["Error executing job with overrides: []", "AttributeError(\"'NoneType' object has no attribute 'a'\")", "full_key: net", "",
          "Set the environment variable HYDRA_FULL_ERROR=1 for a complete stack trace."], "HYDRA_FULL_ERROR=1 for a complete"),
        ([_TRACE, '  File "a.py", line 3, in f', "FileExistsError: /b exists. Please open an issue on our page"], "line 3: the error came from that"),
        (['  File "train.py", line 98', '    f"{name} twice"', "              ^", "SyntaxError: invalid syntax"], "an older Python than intended"),
        (['  File "train.py", line 98', '    a = (b', "              ^", "SyntaxError: invalid syntax"], "correct the syntax there"),
        (["step 1 loss 0.4", "[2025-01-02 E 7] agent.cc:7: Failed to reach the exporter (Ray deduplicates logs. Set RAY_DEDUP_LOGS=0 to disable it.)"],
         "Look for what that line names"),
        (["step 1 loss 0.4", "ERROR: internal failure of the solver", "For tips please check the solver", "website at http://a.b/c"],
         "Look for what that line names"),
        (["step 1 loss 0.4", "FATAL: Unknown mode 'fst', must be one of: slow, fast"], "choose one of those"),
        (["step 1 loss 0.4", "srv: got exception: {\"message\":\"Error: Jinja Exception: roles must alternate\"}"], "what is sent"),
        (["predict.py: error: unrecognized arguments: --lazy", _TRACE, '  File "a.py", line 3, in f', "FileNotFoundError: y.npy"], "--help"),
    ],
)  # fmt: skip
def test_what_the_message_says_to_do_is_advised(lines: list[str], action: str) -> None:
    assert action in explain(lines).findings[0].action


def test_the_package_without_cuda_is_named_not_the_framework() -> None:
    frames = ['  File "a.py", line 8, in f', "    scatter_max(x)", '  File "/v/site-packages/torch_scatter/scatter.py", line 72, in scatter_max',
              "    return torch.ops.torch_scatter.scatter_max(x)", '  File "/v/site-packages/torch/_ops.py", line 692, in __call__']  # fmt: skip
    first = explain([_TRACE, *frames, "RuntimeError: Not compiled with CUDA support"]).findings[0]
    assert first.title.startswith("torch_scatter was built")
    assert "tensorflow" not in first.action
    assert (
        explain([_TRACE, *frames, "AssertionError: Torch not compiled with CUDA enabled"])
        .findings[0]
        .title.startswith("CPU-only")
    )


@pytest.mark.parametrize(
    "text",
    [
        "'NoneType' object has no attribute 'shape'",
        "module 'numpy' has no attribute 'bool'",
        "forward() got an unexpected keyword argument 'mask'",
        "__init__() takes 2 positional arguments and 3 were given",
        "unhashable type: 'list'",
        "sequence item 0: expected str instance, but got int",
        "float() argument must be a string or a real number, not 'list'",
        'can only concatenate str (not "int") to str',
    ],
)
def test_the_text_of_an_exception_that_a_program_prints_alone(text: str) -> None:
    assert text[:40] in explain([*_STEPS, text]).findings[0].title
    assert explain([*_STEPS, text, *_STEPS, "Training finished"]).primary == "healthy"


@pytest.mark.parametrize(
    "end",
    [
        "transcriber.run:375 DEBUG -> whisper process completed with code = 0, time taken = 1:43:36",
        "Process finished with exit code 0",
        "child exited with status 0",
    ],
)
def test_an_exit_code_of_0_that_is_stated(end: str) -> None:
    doubt = "could not open the optional profile"
    assert explain(["frame 10", doubt, end, "bye"]).primary == "healthy"
    assert explain(["frame 10", doubt, end.replace("0", "1"), "bye"]).primary != "healthy"
