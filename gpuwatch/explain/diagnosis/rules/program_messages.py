"""Known errors of a program's own code, data, packages and services: what the error that ended it means.

The first row that matches counts. Sources of the texts: PyTorch (``aten/src/ATen/native``, ``torch/autograd``,
``torch/amp``, ``torch/serialization.py``, ``torch/distributed``), TensorFlow and Keras, DeepSpeed, fairseq, Hugging
Face's huggingface_hub, transformers and safetensors, scikit-learn, NumPy, wandb, Python's own exceptions. What has a
cause of its own is in :mod:`gpuwatch.explain.logs.topics`.
"""

from __future__ import annotations

import re
from itertools import chain

from gpuwatch.core.formatting.text import shorten
from gpuwatch.core.model.run import RunError
from gpuwatch.explain.diagnosis.rules.machine_messages import MACHINE, SYSTEM
from gpuwatch.explain.diagnosis.rules.meanings import Meaning, first
from gpuwatch.explain.diagnosis.rules.program_errors import line_of, names_cause
from gpuwatch.explain.logs.exceptions import is_heading, telling
from gpuwatch.explain.logs.facts import LogFacts
from gpuwatch.explain.logs.topics import topics_of
from gpuwatch.explain.logs.tracebacks import PACKAGES, Frame, file_name

_IN_A_TITLE = 120
_OF_A_PATH = 3
"""Last parts of a path that name a package's file."""
_ANY = re.compile(
    r"(?:Runtime|System|Internal|Unknown|Aborted|Unavailable|Cancelled|Connection\w*|BrokenPipe|Timeout|Import|Status)?"
    r"(?:Error|Exception)$|(?:NoSuchFile|Fail)$"
)
"""Exceptions that native code or another process may be the reason of: whose error it is, is not claimed."""
CAUSE = "program.error"
TWO_DEVICES = Meaning(
    "Tensors of one operation are on different devices",
    "Move them to one device (.to(device)) before the operation: inputs, model, and tensors that the code creates.",
    (
        r"(?i)input type \((?:torch\.)?cuda.*\) and (?:weight|bias) type \((?!(?:torch\.)?cuda)(?:torch|cpu)",
        r"(?i)input type \((?!(?:torch\.)?cuda)(?:torch|cpu).*\) and (?:weight|bias) type \((?:torch\.)?cuda",
        r"is on CPU, but expected (?:it|them) to be on GPU|on the same device as the indexed tensor",
    ),
)
FROM_PARENT = "from_parent"
"""The variable of multiprocessing's spawn from which a new process reads what its parent sends."""
_SPOOLED = re.compile(r"/slurm_script$|/spool/(?:slurm|pbs|lsf)")
_MISSING = re.compile(r"No module named ['\"]?([\w.]+)")
_OF_SPOOL = Meaning(
    "The module {0} was not found from the scheduler's copy of the script, which is not in the program's folder",
    "If it is a file of the program, put the program's folder into PYTHONPATH in the job ($SLURM_SUBMIT_DIR), or submit"
    " a shell script that runs python with the program's own path. If it is a package, install it there.",
    cause=CAUSE,
)
_LOST_PARENT = Meaning(
    "A new process could not read what its parent sent: the parent had failed or ended before",
    "Look for the parent's own error above (an object that cannot be pickled, memory, Ctrl+C), or in its own log; no"
    " file is concerned. Put what starts processes under if __name__ == '__main__':, or try num_workers=0.",
    cause=CAUSE,
)
_NO_FOLDER = Meaning(
    "The folder does not exist in which a file is to be written: {0}",
    "Create it before that line (os.makedirs(…, exist_ok=True), mkdir -p), or correct the path, which may be relative"
    " to another folder.",
    (r"^FileNotFoundError: .*?No such file or directory: [bu]?'([^']+)'",),
    cause=CAUSE,
)
_WRITES = re.compile(r"open\(.*['\"][wax]b?\+?['\"]|\.(?:save\w*|to_csv|to_json|imsave|imwrite|mkdir|dump)\(|\bsavefig\(")
_ROWS: tuple[Meaning, ...] = (
    # Packages
    Meaning("The module {0} of Python exists on Unix only, and this is Windows",
            "Use a version of the importing package that supports Windows, or run the program in WSL2; pip cannot"
            " install that module.",
            (r"^ModuleNotFoundError: No module named '(resource|fcntl|pwd|grp|termios|pty|tty|syslog|posix)'",)),
    Meaning("Another custom node of ComfyUI is missing: {0}",
            "Install that node with ComfyUI's manager (or clone it into custom_nodes), or remove the node that imports"
            " it; pip has no such package.",
            (r"No module named ['\"]?(custom_nodes\.[\w.]+)",)),
    Meaning("The module {0} is missing from its package, which is installed",
            "Another version of the package has it: compare it (pip show) with what the program asks for (its"
            " requirements file); or a file or folder of the program has the package's name. Of a package in parts"
            " (google.…), install the part.",
            (r"^(?:ModuleNotFoundError|ImportError): No module named ['\"]?(\w+\.[\w.]+)(?!.* is not a package)",)),
    Meaning("The Python module {0} is not installed in the environment that ran",
            "Install the package that has it with the same interpreter (python -m pip install …), or activate the"
            " environment that has it: python -c 'import sys; print(sys.executable)' shows which one runs.",
            (r"^(?:ModuleNotFoundError|ImportError): No module named ['\"]?([\w.]+)",
             r"^(?:[\w.]+\.)?TBNotInstalledError: (TensorBoard) is not installed",
             r"^ImportError: (?!.*(?:-U\b|--upgrade|version|upgrad|updat|incompatib|found|[<>=]=)).*?"
             r"\bpip3? install ['\"]?([A-Za-z][\w.-]+)",
             r"^ImportError: .*the package (\w+) seems to be not installed")),
    Meaning("A package is missing from the environment that ran, or too old: {0}",
            "Install it as the line says, with the same interpreter (python -m pip install …), and compare its version"
            " (pip show) with the one that the line asks for.",
            (r"^ImportError: .*?\bpip3? install (?:-U |--upgrade )?['\"]?([A-Za-z][\w.-]+)",)),
    Meaning("{0} is not in the installed version of the package it is imported from",
            "Compare the versions with what the program asks for (its requirements file; pip check), and install"
            " those.",
            (r"^ImportError: cannot import name '([^']+)'(?!.*partially initialized)",)),
    Meaning("A module was imported while it was still being imported: {0}",
            "Look for a file of the program with the name of a package (torch.py, random.py), or two modules that"
            " import each other.",
            (r"^ImportError: cannot import name '([^']+)' from partially initialized",
             r"^AttributeError: partially initialized module '([^']+)'")),
    Meaning("The code uses {0}, which the installed version does not have: another version, or a misspelt name",
            "If that module is the program's own, correct the name; if a package's, compare its version with what the"
            " program asks for (its requirements file; pip check), or look for a file of the program with its name.",
            (r"^AttributeError: module '[\w.]+' has no attribute '([^']+)'",)),
    Meaning("A function was called with the argument {0}, which it does not have",
            "Compare that line with the function's definition. If both are the program's own, one of them was changed"
            " without the other; if the function is a package's, its documentation for the installed version (pip"
            " show) lists the arguments.",
            (r"^TypeError: .*got an unexpected keyword argument '([^']+)'",)),
    Meaning("The installed PyYAML is too new for a package that calls yaml.load without a Loader",
            "Update that package (the last frame in site-packages names it), or pip install 'pyyaml<6'; code of your"
            " own: yaml.safe_load.",
            (r"^TypeError: load\(\) missing 1 required positional argument: 'Loader'",)),
    Meaning("A function was called without {0}, which it requires",
            "Compare that line with the function's definition: another version of it takes more arguments, or one"
            " of both was changed without the other. In ComfyUI, update the custom node and add it to the workflow"
            " again.",
            (r"^TypeError: .*missing \d+ required (?:positional|keyword-only) arguments?: ('[^']+')",)),
    Meaning("A value is None, and {0} of it is used",
            "Find what returned None: a lookup or an allocation that failed, a function without return, a file that"
            " was not found. Check for it before that line.",
            (r"^AttributeError: 'NoneType' object has no attribute '([^']+)'",)),
    Meaning("The name {0} is used before it is defined, or misspelt",
            "Correct it at that line, or import it; in a notebook, run the cell that defines it first (restart the"
            " kernel and run all cells: that shows the order).",
            (r"^NameError: name '([^']+)' is not defined",)),
    Meaning("A value of type {0} is formatted as a number",
            "Convert it first (float(…)), or leave the format out where a value is missing.",
            (r"^ValueError: Unknown format code '\w' for object of type '(\w+)'",)),
    Meaning("A compiled package was built for another version of NumPy",
            "Install NumPy as that package needs it (often: pip install 'numpy<2'), or a newer build of the package.",
            (r"numpy\.(?:dtype|ndarray|ufunc) size changed", r"compiled using NumPy 1\.x cannot be run in",
             r"numpy\.core\.multiarray failed to import", r"RuntimeError: Numpy is not available")),
    Meaning("A compiled package was built for a newer system: its C or C++ library is older here",
            "Install a build for this system (conda, a container, an older release of the package), or take libstdc++"
            " from conda (conda install -c conda-forge libstdcxx-ng) and put its folder first in LD_LIBRARY_PATH.",
            (r"version `(?:GLIBC|GLIBCXX|CXXABI)_[\d.]+' not found",)),
    Meaning("A shared library that a package needs is missing, none of CUDA's: {0}",
            "Install the system package that has it (apt-file search, conda install), or add its folder to"
            " LD_LIBRARY_PATH.",
            (r"(?:ImportError|OSError): (lib(?!cu|nv)[\w.+-]+\.so[.\d]*): cannot open shared object file",)),
    Meaning("The installed program does not know this kind of model: {0}",
            "Update it (transformers, vLLM, llama.cpp, Ollama), or use the version that the model's page names.",
            (r"unknown model architecture: '([^']+)'", r"Model architectures \[?'?([\w-]+)'?.{0,200} are not supported",
             r"has model type `?'?([\w-]+)`?'? but Transformers does not recognize",
             r"unknown pre-tokenizer type: '([^']+)'")),
    Meaning("A request is longer than the context that the model was started with",
            "Start the server with a larger one (llama.cpp: -c; Ollama: num_ctx; vLLM: --max-model-len; SGLang:"
            " --context-length), if the model and the GPU's memory allow it; otherwise shorten the prompts.",
            (r"exceeds the available context size", r"maximum context length is \d+ tokens.{0,40}you requested",
             r"longer than (?:the maximum model length|the model's context length)")),
    Meaning("The compiled part of a package is missing, or was built for another PyTorch: {0}",
            "Reinstall that package for the installed torch (pip show torch; its page names the versions), in a folder"
            " other than its source, whose name Python would import instead.",
            (r"Tried to instantiate class '([\w.:]+)', but it does not exist",
             r"'_OpNamespace' '(?!torch(?:vision|audio))(\w+)' object has no attribute",
             r"operator (?!torch)(\w+::\w+) does not exist")),
    Meaning("torch and torchvision (or torchaudio) of different versions: an operator is missing",
            "Install them together, as pytorch.org lists them for one version.",
            (r"operator torch(?:vision|audio)::\w+ does not exist", r"Couldn't load custom C\+\+ ops")),
    Meaning("The program asked for input (input()), and there is no terminal to read it from",
            "Take the value from an argument or a file: under nohup, a scheduler or a service nobody can answer.",
            (r"^EOFError: EOF when reading a line",
             r"raw_input was called, but this frontend does not support|StdinNotImplementedError")),
    # Numbers
    Meaning("The loss or the gradients became infinite or NaN: the loss scale of float16 reached its minimum",
            "Use bfloat16 instead of float16 if the GPU has it, a lower learning rate, or gradient clipping; look for"
            " the first step whose loss is not finite.",
            (r"loss scale already at minimum", r"Minimum loss scale reached", r"reached minimum (?:loss )?scal")),
    Meaning("The backward pass produced NaN in {0}",
            "The forward line of that function is in the traceback above it: guard its input (log or sqrt of 0, a"
            " division by 0, exp of large values), or lower the learning rate.",
            (r"Function '(\w+)' returned nan values",)),
    Meaning("The loss became NaN or infinite, and the program stops then",
            "Look for the first step whose loss is not finite: a lower learning rate, bfloat16 instead of float16,"
            " gradient clipping, inputs without NaN.",
            (r"(?i)\bloss is (?:nan|inf)", r"(?i)\bnan (?:loss|detected|found)", r"(?i)contains? nan\b",
             r"(?i)inf or nan ?: tensor|loss became infinite or nan|nan in summary histogram",
             r"matrix contains invalid numeric entries|to satisfy the constraint[^\n]*\n?.*nan",
             r"(?i)non-finite (?:loss|grad)|Input contains infinity")),
    # Shapes, types, autograd: the code of the program
    Meaning("NumPy arrays of different shapes in one operation: {0}",
            "Print both shapes before that line: one has an axis more (scores where labels are expected: argmax), or"
            " they are of different length.",
            (r"operands could not be broadcast together with shapes (\([^)]*\) \([^)]*\))",)),
    Meaning("Labels and predictions are of different kinds (classes and numbers, or another shape)",
            "Turn predictions into classes first (argmax, a threshold), and give both the same shape.",
            (r"Mix type of y not allowed|Classification metrics can't handle a mix of|Unknown label type",)),
    Meaning("A tensor of several elements was used as one number",
            "Reduce it first (.mean(), .sum(), an index), or keep it a tensor: .item(), float() and int() take exactly"
            " one element.",
            (r"elements cannot be converted to Scalar|only one element tensors can be converted",
             r"only (?:size-1|length-1|0-dimensional) arrays can be converted to Python scalars")),
    Meaning("An index has more dimensions than the tensor or array that it is used on",
            "Print its shape before that line: a dimension less than expected (squeeze, a batch of one, a missing axis)"
            " is the usual reason.",
            (r"too many indices for",)),
    Meaning("Samples of different sizes cannot be stacked into one batch",
            "Bring them to one size or one number of channels in the dataset (resize, crop, mono), or give the"
            " DataLoader a collate_fn that pads them.",
            (r"stack expects each tensor to be equal size", r"all input arrays must have the same shape")),
    Meaning("Shapes of tensors do not fit each other: the model and its input, not the GPU",
            "Print the shapes before that line; a missing batch dimension and another image size are the usual"
            " reasons.",
            (r"shapes cannot be multiplied", r"size mismatch, m1:",
             r"must match the (?:size of tensor b|existing size)", r"Sizes of tensors must match",
             r"Expected \S+ ?(?:\(\w+\) or \S+ \(\w+\) )?input (?:for|to) ", r"Expected \d\w? ?\(unbatched\)",
             r"xpected input\S* to have \d+ channels", r"expected input\[.*\] to have",
             r"shape '\[.*\]' is invalid for input of size",
             r"Expected input batch_size", r"Target size .* must be the same as input size",
             r"Given (?:groups|transposed|normalized_shape)=", r"multi-target not supported", r"Incompatible shapes:",
             r"Matrix size-incompatible", r"Dimensions must be equal", r"[Ii]s incompatible with the layer",
             r"logits and labels must (?:be broadcastable|have the same)", r"Shapes \(.*\) and \(.*\) are incompatible",
             r"operands could not be broadcast", r"inhomogeneous shape",
             r"(?i)incompatible shapes for (?:broadcasting|dot)", r"dot_general requires",
             r"cannot reshape array of size", r"Kernel size can't be greater than actual input size",
             r"(?i)dimension out of range|is out of bounds for (?:dimension|axis)|index out of range in self",
             r"expanded size of the tensor|doesn't match the broadcast shape|(?i:could not (?:be )?broadcast)",
             r"xpected \d-dimensional (?:input|weight)|Input to reshape is a tensor with|indices\[.*\] = .* is not in",
             r"Calculated (?:padded input|output) size|Tensors must have same number of dimensions",
             r"view size is not compatible with input tensor's|should have at least \w+ dimensions",
             r"expect(?:s|ed)? a non-empty (?:list of Tensors|TensorList)|Boolean value of Tensor with more")),
    TWO_DEVICES,
    Meaning("Tensors of one operation have different types (float16, bfloat16, float32)",
            "Convert the input or the model (.to(dtype)), or run the step under torch.autocast, which does it.",
            (r"(?i)input type \(.*\) and (?:weight|bias) type \(", r"must have the same dtype",
             r"expected .* to have the same dtype", r"expected scalar type \w+ but found",
             r"Found dtype \w+ but expected", r"to have (?:one of the following )?scalar types?",
             r"can't be cast to the desired output type|source and destination dtypes match",
             r"Could not infer dtype of|Invalid scalar type",
             r"cannot compute \w+ as input #\d.* was expected to be an? \w+ tensor")),
    Meaning("The operation exists for other types only, not for {0} on this device",
            "Convert the tensor (.float() for float16 on the CPU, .long() for labels). If float16 ran on the CPU, the"
            " model was not moved to the GPU.",
            (r"\"\w+\" not implemented for '(\w+)'",)),
    Meaning("A tensor on the GPU was given to NumPy, which reads host memory only",
            "Call .detach().cpu().numpy().",
            (r"can't convert cuda:?\d* device type tensor to numpy",)),
    Meaning("The gradient cannot be computed: the graph of the forward pass is gone, changed, or was not recorded",
            "Look for in-place operations, a second backward() without retain_graph, detached or frozen tensors, and"
            " torch.no_grad; torch.autograd.set_detect_anomaly(True) names the operation.",
            (r"backward through the graph a second time", r"does not require grad and does not have a grad_fn",
             r"modified by an inplace operation", r"grad can be implicitly created only for scalar",
             r"leaf Variable that requires grad|numpy\(\) on Tensor that requires grad",
             r"No gradients provided for any variable")),
    Meaning("The steps of mixed precision are in the wrong order, or the weights themselves are float16",
            "Keep the weights float32 under autocast; call scaler.scale(loss).backward(), unscale_, step, update in"
            " that order.",
            (r"Attempting to unscale FP16 gradients", r"No inf checks were recorded for this optimizer",
             r"unscale_\(\) has already")),
    Meaning("Batch normalisation was given a batch of one sample",
            "Drop the last, smaller batch (DataLoader(drop_last=True)), or use a larger one.",
            (r"Expected more than 1 value per channel when training",)),
    # Several processes
    Meaning("DistributedDataParallel: parameters got no gradient in a step",
            "Pass find_unused_parameters=True, or remove the parameters that the loss does not use;"
            " TORCH_DISTRIBUTED_DEBUG=DETAIL names them.",
            (r"Expected to have finished reduction in the prior iteration", r"mark a variable ready only once")),
    Meaning("torch.distributed was used before init_process_group",
            "Start the program with torchrun and call torch.distributed.init_process_group() first; for one GPU switch"
            " the distributed setting off.",
            (r"(?i)default process group has not been initialized", r"(?i)please make sure to call init_process_group",
             r"(?i)environment variable (?:RANK|WORLD_SIZE|MASTER_ADDR|MASTER_PORT) expected")),
    Meaning("The job's sizes contradict each other: batch, processes, parallel sizes",
            "The batch must be micro batch x accumulation x data-parallel ranks, and the world size divisible by"
            " tensor x pipeline size: compare the settings with the number of GPUs.",
            (r"Check batch related parameters", r"train_batch_size is not equal to",
             r"world[ _]size.{0,40}(?:is not divisible|must be divisible)",
             r"(?:heads|vocab size).{0,60}(?:must be|is not) divisible by (?:tensor|the tensor)")),
    Meaning("A new process was started while the program's main module was still being imported",
            "Put what starts processes (DataLoader workers too) under if __name__ == '__main__':",
            (r"before the\s+current process has finished its bootstrapping phase",)),
    Meaning("An object cannot be pickled for a new process: {0}",
            "Define it at the top of a module (no lambda, no local function), or start workers with fork"
            " (num_workers=0 needs none).",
            (r"(?:Can't|cannot) pickle (?:local object )?'?([\w.<>]+)",)),
    Meaning("The configuration lacks a value or has an unknown key: {0}",
            "Give it on the command line (key=value; +key=value for a new one), or correct the configuration.",
            (r"^MissingMandatoryValue: Missing mandatory value: (\S+)", r"^Could not override '([^']+)'",
             r"^(?:ConfigAttributeError: )?Key '([^']+)' is not in struct")),
    Meaning("Settings or data were refused: {0}",
            "Change what the line names: a field and what it must be, or options that contradict each other.",
            (r"^ValidationError: \d+ validation errors? for (\S+: (?!.*(?i:gpu|cuda|device|memory|driver)).{4,})",)),
    # Files, data, checkpoints
    Meaning("A checkpoint does not fit the model: other layers or other shapes",
            "Build the model with the settings of the checkpoint; the error lists what is missing or has another"
            " shape.",
            (r"\bKey \S+ not found in checkpoint|Assign requires shapes of both tensors to match",
             r"Error\(s\) in loading state_dict", r"size mismatch for \S+: copying a param",
             r"Layer count mismatch when loading", r"weight file containing \d+ layers into",
             r"loaded state dict (?:has|contains) a")),
    Meaning("A checkpoint could not be written: most often the disk or a quota is full",
            "Look at df -h, df -i and quota -s for its folder; the file that was begun is incomplete.",
            (r"PytorchStreamWriter failed writing", r"unexpected pos \d+ vs \d+")),
    Meaning("A checkpoint or data file is damaged, cut off, or not what its name says",
            "Compare its size with the source and fetch it again; a file of some hundred bytes is a pointer of Git LFS"
            " (git lfs pull).",
            (r"failed finding central directory", r"PytorchStreamReader failed",
             r"unexpected EOF, expected \d+ more bytes|^EOFError: Ran out of input", r"invalid load key", r"pickle data was truncated",
             r"HeaderTooLarge|MetadataIncompleteBuffer|InvalidHeaderDeserialization|HeaderTooSmall",
             r"file signature not found", r"(?:truncated|corrupted) record at", r"File is not a zip file",
             r"image file is truncated|not within the file bounds|model is corrupted or incomplete",
             r"cannot identify image file|Invalid data found when processing input|could not parse ModelProto",
             r"\(-215:Assertion failed\) !(?:_src|ssize)\.?empty",
             r"invalid magic (?:characters|number)|gguf_init_from_file: failed")),
    Meaning("A model quantised by bitsandbytes was moved or converted (.to, .cuda, .half), which it cannot be",
            "Remove that call: device_map and torch_dtype of from_pretrained choose its device and type.",
            (r"`\.to` is not supported for `?[48]-bit",)),
    Meaning("Weights were not loaded (they are on the meta device), and the program moves the model",
            "Load it with device_map='auto' and do not call .to() on it, or use to_empty(); low_cpu_mem_usage=False"
            " loads all.",
            (r"Cannot copy out of meta tensor",)),
    Meaning("A matrix cannot be factorised: it is singular or not positive definite, or has NaN",
            "Add a small value to its diagonal (jitter), compute in float64, and look for NaN in its input.",
            (r"factorization could not be completed|[Ss]ingular matrix|not positive[- ]definite",
             r"U\(\d+,\d+\) is zero",)),
    Meaning("torch.load refuses the file: it holds more than weights",
            "If you trust its source: torch.load(…, weights_only=False), or allow its classes by"
            " torch.serialization.add_safe_globals.",
            (r"Weights only load failed",)),
    Meaning("A folder does not exist: {0}",
            "Create it (mkdir -p) or correct the path; in a container or a job, check whether it is mounted there.",
            (r"Parent directory (\S+) does not exist", r"Cannot save file into a non-existent directory: '([^']+)'")),
    Meaning("A file or folder does not exist: {0}",
            "Correct the path (it may be relative to another folder), or fetch the file; in a container or a job, look"
            " whether it is mounted there.",
            (r"^(?:FileNotFoundError|NotADirectoryError|Error): .*?No such file or directory: [bu]?'([^']+)'",
             r"^FileNotFoundError: .*WinError [23]\].*'([^']+)'",
             r"^NotFoundError: .*?(\S+); No such file or directory", r"Failed to find any matching files for (\S+)",
             r"Cannot find any model weights with [`']([^`']+)",
             r"^Error: pull model (manifest): file does not exist")),
    Meaning("The program may not write or read {0}",
            "Look at its owner and mode (ls -ld), and in a container at the user and whether the mount is read-only.",
            (r"^PermissionError: \[(?:Errno|WinError) \d+\].*?'([^']+)'", r"\[Errno 30\].*?'([^']+)'")),
    Meaning("The dataset is empty",
            "Look at its path, at the file patterns and at filters: no sample was left.",
            (r"No columns to parse from file", r"num_samples should be a positive integer value, but got num_samples=0",
             r"Found 0 (?:files|images)", r"(?i)couldn't find any class folder",
             r"(?i)unexpected result of `?train_function`? \(empty logs\)")),
    Meaning("The dataset has no length (it is streamed), and the number of steps was not given",
            "Set max_steps of the training's arguments, or give the dataset a length (__len__).",
            (r"train_dataset does not implement __len__, max_steps has to be specified",)),
    Meaning("The dataset that the configuration names does not exist",
            "Look at the paths in its yaml file: they are relative to the folder in which the program was started, or"
            " to the one in its settings; the lines before name what was not found.",
            (r"^(?:Exception|FileNotFoundError|AssertionError): Dataset (?:not found|'.*' (?:images )?not found)",)),
    Meaning("The program itself reports what failed: {0}",
            "Look for that message in its source, and for what it says was missing before.",
            (r"\b(?:[Pp]ipeline|[Tt]raining|[Ee]valuation|[Pp]reprocessing|[Ee]xperiment|[Ii]nference)"
             r" failed: (?!.*(?i:gpu|cuda|nccl|memory|device|driver))([^\n]{8,})",)),
    # Services
    Meaning("Hugging Face limits how often it is asked: too many requests",
            "Log in (huggingface-cli login, HF_TOKEN), which allows more, wait some minutes, or download once and set"
            " HF_HUB_OFFLINE=1; on a cluster let one process download for all.",
            (r"429 Client Error.*huggingface\.co",)),
    Meaning("Hugging Face refuses the download: the model or dataset is private or gated, or does not exist",
            "Check its name; accept its terms on its page, then log in (huggingface-cli login, HF_TOKEN).",
            (r"GatedRepoError|RepositoryNotFoundError", r"(?i)you are trying to access a gated repo",
             r"(?:401|403) Client Error.*huggingface\.co", r"DatasetNotFoundError",
             r"is not a local folder and is not a valid model identifier",
             r"Can't load (?:tokenizer|the model|config\w*|feature extractor) for '")),
    Meaning("The model's folder or repository has no file of the kind that is looked for: {0}",
            "Look into it (ls, or its page): a file is missing or has another format (GGUF, LoRA adapter, original"
            " weights); name the folder that has config.json and the weights, or the revision.",
            (r"does not appear to have (?:a file|files) named ([\w.-]+)",)),
    Meaning("A server on the network could not be reached, or refused: a download or a request failed",
            "Look at network, proxy (HTTPS_PROXY) and certificates of this host; compute nodes often have none: fetch"
            " it on a login node first (HF_HUB_OFFLINE=1 uses what is cached).",
            (r"Max retries exceeded with url",
             r"^ConnectionError: .*(?:RemoteDisconnected|Connection aborted|NewConnectionError)",
             r"(?i)(?:temporary failure in name resolution|name or service not known|getaddrinfo failed)",
             r"CERTIFICATE_VERIFY_FAILED", r"We couldn't connect to 'https?://", r"IncompleteRead\(",
             r"^(?:ClientConnector\w*|ServerDisconnected|ChunkedEncoding|ProtocolError)\w*: ",
             r"<urlopen error|HTTP Error \d+:|Read timed out\.|^(?:ReadTimeout|ConnectTimeout|SSLError)\b",
             r"LocalEntryNotFoundError|OfflineModeIsEnabled")),
    Meaning("Weights & Biases (wandb) ended the program, not the GPU",
            "Log in (wandb login, WANDB_API_KEY) or go without it (WANDB_MODE=offline or disabled); its folder"
            " wandb/latest-run/logs says more.",
            (r"(?i)wandb backend process has shutdown", r"(?i)api_key not configured", r"(?i)\bwandb\.(?:errors|sdk)\.",
             r"HandleAbandonedError|MailboxClosedError|api\.wandb\.ai",
             r"^(?:CommError|UsageError|ServiceStartTimeoutError): .*(?i:wandb|api.?key|run |project)",
             r"^AuthenticationError: .*(?i:wandb)")),
    Meaning("A service refused the program's key or login",
            "Set the key that the service's client reads (its variable must reach the job and the container), or renew"
            " it.",
            (r"^AuthenticationError: ", r"^NoCredentialsError", r"(?i)(?:incorrect|invalid) api key")),
)  # fmt: skip
PROGRAM = tuple(row._replace(cause=CAUSE) for row in _ROWS)

_BY_TYPE: tuple[Meaning, ...] = (
    Meaning("", "correct the syntax there or on the line before (a bracket, comma, colon or quote is missing or too"
            " many); python -m py_compile on that file shows it at once.",
            (r"^(?:Syntax|Indentation|Tab)Error",)),
    Meaning("", "the divisor is 0: what is counted or measured there is empty. Find why (no batch, no result), or test"
            " for it first.",
            (r"^ZeroDivisionError",)),
    Meaning("", "that key is not in it: print the keys (of a table: its columns) before that line. Data, a"
            " configuration or a checkpoint of another version lacks it, or it is misspelt.",
            (r"^KeyError",)),
    Meaning("", "print the length of what is indexed there and the index: it is shorter than expected, most often"
            " empty, as nothing was found, loaded or left by a filter.",
            (r"^IndexError",)),
    Meaning("", "an object of {0} has no {1}: correct the name, or set it (in __init__) before it is used. If {0} is a"
            " package's class, compare the package's version (pip show) with what the program asks for.",
            (r"^AttributeError: (?:type object )?'([^']+)' (?:object )?has no attribute '([^']+)'",)),
    Meaning("", "the call and the function's definition differ in their number of arguments: one of them was changed"
            " without the other, or self is missing in a method.",
            (r"^TypeError: .*takes .*positional arguments? but",)),
    Meaning("", "print what is unpacked there: it has another number of values than there are names on the left.",
            (r"^ValueError: (?:not enough|too many) values to unpack",)),
    Meaning("", "print the types of the values in that line: one is not what it expects, often None or a text in place"
            " of a number, a list or a dictionary.",
            (r"^TypeError",)),
    Meaning("", "the name has no value yet on the way that was taken: give it one before the branch or the loop.",
            (r"^UnboundLocalError",)),
    Meaning("", "what was asked for is not implemented there: choose another option, type or model, or a version of"
            " the package that has it.",
            (r"^NotImplementedError",)),
    Meaning("", "the condition of that assert does not hold: print the values that it compares; they come from the"
            " arguments, the configuration or the data.",
            (r"^AssertionError",)),
    Meaning("", "a file that should be JSON is empty or is something else: print its first characters and where they"
            " come from.",
            (r"^JSONDecodeError",)),
    Meaning("", "the file is not in the encoding that it is read with: pass encoding= to open(), or look whether it is"
            " a binary file.",
            (r"^Unicode\w+Error",)),
    Meaning("", "the message says which value was refused: print what that line is given, and follow it back to the"
            " arguments, the configuration or the data.",
            (r"^\w*(?:Value|Config\w*|Validation|Pars\w+)(?:Error|Exception)",)),
    Meaning("", "its message tells what that line could not do: check what it is given (paths, names, options, data)"
            " and what it needs there.",
            (r"",)),
)  # fmt: skip
"""What to do about exceptions without a meaning of their own, by type: the rest of a sentence that names the place."""

_PLAIN = frozenset(
    (
        "AssertionError", "AttributeError", "BadZipFile", "EOFError", "FileExistsError", "FileNotFoundError",
        "FloatingPointError", "IndexError", "IsADirectoryError", "KeyError", "LinAlgError", "LookupError",
        "NotADirectoryError", "NotImplementedError", "OverflowError", "PermissionError", "PicklingError",
        "StopIteration", "UnicodeDecodeError", "UnicodeEncodeError", "UnpicklingError", "ValueError",
    )
)  # fmt: skip
"""Exceptions that Python code raises: of the program, unless their text is about a GPU."""
_NEVER_OF_A_GPU = frozenset(
    (
        "IndentationError", "ModuleNotFoundError", "NameError", "RecursionError", "SyntaxError", "TabError",
        "TypeError", "UnboundLocalError", "ZeroDivisionError",
    )
)  # fmt: skip
_MAY_CONCERN_GPUS = frozenset(
    (
        *PACKAGES, "accelerate", "apex", "concurrent", "cuda", "deepspeed", "docker", "flash_attn", "grpc", "keras",
        "lightning", "multiprocessing", "nvidia", "pycuda", "pynvml", "pytorch_lightning", "ray", "subprocess",
        "tensorflow", "tensorrt", "torchaudio", "torchvision", "transformers", "triton", "xformers",
    )
)  # fmt: skip
"""Packages whose exceptions may be about a GPU, or another process; those of others are the program's own."""
_OF_SETTINGS = re.compile(
    r"(?:Tracer\w*|Type|Value|Key|Config\w*|Misconfiguration|Validation|Pars(?:e|er|ing)|Scanner|Decode|Argument)"
    r"(?:Error|Exception)$"
)
OF_A_GPU = re.compile(
    r"gpu|cuda|cudnn|nvidia|nvcc|ptxas|nvml|driver|device|rank|worker|/dev/|\.so\b|\.dll\b", re.IGNORECASE
)
_MAY_BE_OF_A_GPU = re.compile(rf"{OF_A_GPU.pattern}|nccl|cublas|memory|oom\b|engine|xla", re.IGNORECASE)
_OF_THE_MACHINE = re.compile(r"nvidia-smi|nvcc|ptxas|'_cuda|/dev/(?:nvidia|kfd|dri)|lib(?:cu|nv)\w*\.so")
"""A name or file of the driver or of CUDA, which should be there."""


def of_the_frame(error: RunError, log: LogFacts) -> Meaning | None:
    """What the line that raised an exception says of it, whatever its message; None for most lines."""
    frame = log.error_frames.get(f"{error.type}: {error.message}")
    missing = _MISSING.match(error.message) if error.type == "ModuleNotFoundError" else None
    if frame is not None and missing is not None and _SPOOLED.search(frame.file) is not None:
        return _OF_SPOOL._replace(title=_OF_SPOOL.title.format(missing[1]))
    if frame is not None and _WRITES.search(frame.code) is not None:
        return first((_NO_FOLDER,), line_of(error))
    read = frame is not None and FROM_PARENT in frame.code
    return _LOST_PARENT if read and error.type in ("UnpicklingError", "EOFError") else None


def meaning(error: str) -> Meaning | None:
    """What the error that ended a program means, as ``Type: message``; None if it is not a known one."""
    known = first(chain(SYSTEM, PROGRAM, MACHINE), error)
    return None if known is not None and known.cause == CAUSE and _OF_THE_MACHINE.search(error) else known


def by_type(error: RunError, log: LogFacts, how: str) -> Meaning | None:
    """What is certain of an exception whose text is not known: it is the program's own, if code raised it, and neither
    its text nor any error of the log is about a GPU. ``how`` begins the title: "It ended in"."""
    if topics_of(error.message) or any(names_cause(topics_of(error.message)) for error in log.errors):
        return None
    if is_heading(telling(error.message)):
        return None  # what TensorFlow says after it is cut off
    frame = log.error_frames.get(f"{error.type}: {error.message}")
    code = frame.code if frame is not None and not frame.of_a_package else ""
    package = frame.error_package if frame is not None else ""
    raised = error.type in _PLAIN or _OF_SETTINGS.search(error.type) is not None or code.startswith("raise ")
    raised = raised or (bool(package) and package not in _MAY_CONCERN_GPUS)
    said = f"{telling(error.message)} {code}"
    if error.type in _NEVER_OF_A_GPU or (raised and not _MAY_BE_OF_A_GPU.search(said)):
        title, cause = f"{how} {error.type}: the program's own error, not the GPU's", CAUSE
    elif log.last_error_has_traceback and not _MAY_BE_OF_A_GPU.search(f"{error.type} {telling(error.message)}"):
        title = f"{how} {shorten(line_of(error), _IN_A_TITLE)}"
        cause = "unknown" if _ANY.match(error.type) or package in _MAY_CONCERN_GPUS else CAUSE
    else:
        return None
    return Meaning(title, what_to_do(error, log), cause=cause)


def what_to_do(error: RunError, log: LogFacts) -> str:
    """Where to look for what raised an exception without a meaning of its own, and for what, by its type."""
    hint = first(_BY_TYPE, line_of(error))
    place = _place(log.error_frames.get(f"{error.type}: {error.message}"))
    return f"{place}: {hint.action}" if hint is not None else place


def _place(frame: Frame | None) -> str:
    """Where to look for what raised an exception."""
    if frame is None:
        return "Look at the last frames of its traceback"
    if frame.of_a_package:
        within = "/".join(frame.file.replace("\\", "/").split("/")[-_OF_A_PATH:])
        return f"It was raised in a package ({within}, line {frame.line}); look at what the program asks of it"
    return f"Open {file_name(frame.file)}, line {frame.line}"
