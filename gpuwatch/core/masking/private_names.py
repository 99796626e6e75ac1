"""Which names in a text ``--redact`` replaces, and which it leaves because they are the same everywhere.

Most private names stand after a word that tells what they are (``nodeName: x``, ``--job-name x``, ``pod "x"``):
:data:`NOUNS` has these words. A name that only its place in a line reveals has a row in ``private_names.txt``: its
kind, what a line must contain to be searched, and a pattern whose groups are names. Ids, addresses and paths are
recognized by their form, whatever stands around them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from gpuwatch.core.formatting.lazy_pattern import lazy
from gpuwatch.core.word_set import word_set

PUBLIC = (
    "nvidia.com", "tensorflow.org", "pytorch.org", "python.org", "pypi.org", "keras.io", "docker.com", "kernel.org",
    "google.com", "kubernetes.io", "docs.rs", "readthedocs.io", "ubuntu.com", "debian.org", "huggingface.co",
    "githubusercontent.com", "ray.io", "vllm.ai", "pypa.io", "amd.com",
)  # fmt: skip
"""Sites that logs and advice link to."""
PUBLIC_HOSTS = (
    *PUBLIC, "github.com", "gitlab.com", "bitbucket.org", "docker.io", "nvcr.io", "ghcr.io", "quay.io", "gcr.io",
    "k8s.io", "anaconda.org", "conda.io", "wandb.ai", "kaggle.com", "pythonhosted.org",
)  # fmt: skip
"""Hosts that name nobody; what stands behind them may."""
PUBLIC_ADDRESSES = frozenset({"8.8.8.8", "8.8.4.4", "1.1.1.1", "1.0.0.1", "9.9.9.9"})
"""Resolvers of domain names."""
PUBLIC_REPOSITORIES = ("/tensorflow/", "/pytorch/", "/nvidia/", "/keras-team/", "/openxla/")
PLACES = "/usr/lib /usr/lib64 /usr/bin /usr/share /lib /lib64 /bin /sbin /proc /sys /dev /etc /run /boot"
SYSTEM_FOLDERS = tuple(PLACES.split())
"""Folders that are the same everywhere: paths in them stay."""
TEMPORARY = lazy(r"(?:/tmp|/var/tmp|/dev/shm|/run/user/\d+)/(?=.)")
"""Shared folders: users choose the names in them, even plain ones such as ``venv``."""
DEVICES = frozenset({"job", "replica", "task", "device", "gpu", "cpu", "physical_device", "xla_cpu", "xla_gpu"})
"""``/job:localhost`` and ``/GPU:0`` are TensorFlow devices, not paths."""
PACKAGES = (
    "nvidia", "tensorflow", "torch", "keras", "triton", "jax", "numpy", "xla", "tf_keras", "gpuwatch", "transformers",
    "accelerate", "diffusers", "datasets", "peft", "trl", "deepspeed", "vllm", "sglang", "ray", "lightning",
    "pytorch_lightning", "ultralytics", "sklearn", "scipy", "pandas", "PIL", "cv2", "flax", "optax", "timm",
    "huggingface_hub", "tokenizers", "safetensors", "bitsandbytes", "xformers", "flash_attn", "einops", "h5py", "wandb",
    "matplotlib", "tqdm", "absl", "requests", "urllib3", "pydantic", "fastapi", "uvicorn", "starlette", "gradio",
    "click", "mlflow", "hydra", "omegaconf", "psutil", "pynvml", "cupy", "numba", "apex", "IPython", "mxnet",
)  # fmt: skip
COMMON = word_set(
    """
usr lib lib64 lib32 bin sbin local opt home Users users root tmp var proc sys dev etc mnt media srv data run boot
site-packages dist-packages envs env venv .venv virtualenvs .local .cache .config .conda .pyenv versions share include
src stubs compat targets x86_64-linux x86_64-linux-gnu aarch64-linux-gnu sbsa-linux extras CUPTI nvvm wsl kernel
libdevice nvidia cudnn cublas cuda_runtime cuda_nvrtc cufft curand cusolver cusparse nccl nvjitlink nvtx tensorflow
torch keras cuda conda miniconda3 anaconda3 miniforge3 appdata programdata program files path to kaggle input
working content mambaforge uv pip tools gpuwatch sim runs workspace build scratch python python3 sh bash zsh jupyter-lab
jupyter-notebook ipython torchrun accelerate . .. ~
""".lower()
)
KNOWN = frozenset(name.lower() for name in PACKAGES) | COMMON | {"huggingface", "openai"}
ROUTE = lazy(
    r"/(?:v\d(?:/[a-z_]+){0,3}|metrics|health[a-z_]*|generate[a-z_]*|docs(?:/oauth2-redirect)?|redoc|openapi\.json|ping"
    r"|version|(?:de)?tokenize|invocations|score|rerank|pooling|classify|api/(?:generate|chat|tags|show|version|ps|pull))"
)
"""What model servers answer to."""
SOURCES = lazy(
    r"(?:tensorflow|tensorflow_core|xla|tsl|torch|keras)/(?:core|python|compiler|stream_executor|framework|csrc|cuda|nn"
    r"|src|engine|backend|_inductor|_dynamo)/"
    r"|(?:c10|caffe2)/\w+/|aten/src/|csrc/(?=\w)|sglang/srt/|vllm/(?:v1|engine|worker|entrypoints|model_executor)/"
)
"""Where a framework's sources begin in a path of its build machine."""
LIKE_COMMON = lazy(
    r"lib[\w+-]+(?:\.so|\.a)[\d.]*|python\d*(?:\.\d+)*|cuda-?[\d.]*|v?\d+(?:\.\d+)*|[\w-]+\.dist-info|nvidia[\w.-]*"
)
SUFFIXES = "py|sh|ipynb|ya?ml|json|toml|cfg|ini|h5|keras|pt|pth|ckpt|npz|npy|csv|parquet|tfrecord"
SCRIPT = lazy(rf"[\w.-]+\.(?:{SUFFIXES})")
USERS = word_set("user username USER LOGNAME USERNAME SUDO_USER SLURM_JOB_USER JUPYTERHUB_USER")
"""Fields and variables that name a user."""
NOBODY = word_set("""
root nobody daemon bin sys sync games man lp mail news uucp proxy www-data backup list irc gnats messagebus syslog sshd
systemd-network systemd-resolve systemd-timesync dbus polkitd chrony nvidia-persistenced nvidia-fabricmanager gdm xrdp
postgres mysql redis slurm munge docker containerd kubelet jovyan jupyter ubuntu debian centos fedora ec2-user
azureuser opc vagrant runner sudo adm wheel video render staff users tty disk cdrom plugdev kvm docker root input lxd
""")
"""Accounts of systems and images, not of persons."""
SYSTEMD_UNIT_PREFIXES = ("slot", "systemd-", "modprobe", "getty", "serial-getty", "user")
"""Beginnings of systemd's unit templates, whose instances stand after an @ as hosts do."""
HOSTS = word_set("host node hostname HOSTNAME HOST SLURMD_NODENAME SLURM_NODELIST MASTER_ADDR NODE_NAME")
ID_VARIABLES = lazy(r"(?:SLURM_|PBS_|LSB_|JOB_|POD_|KUBERNETES_|WANDB_|MLFLOW_)\w*")
NAMES_THAT_ARE_WORDS = word_set("""
root nobody gpu cpu cuda nvidia python tensorflow torch keras docker local localhost test user users admin train default
data model run node server host machine driver device process memory growth
""")
"""Names that are also words: replaced only in their own fields and in paths."""
PLAIN = word_set(
    "get post put none null true false unknown auto default yes no on off n/a - all gpu0 error warning info self not"
    " it the a an is was has no in on of for at and or to with this that code file files exit number id name"
)
"""What stands where a name could, and is none."""
PUBLIC_IMAGES = word_set(
    "docker.io nvcr.io quay.io ghcr.io gcr.io registry.k8s.io nvidia tensorflow pytorch library rapidsai"
)
ROLE_MAILBOXES = frozenset(
    {"noreply", "info", "sales", "contact", "hello", "office", "service", "webmaster", "postmaster"}
)
PUBLIC_MAIL = ("gmail.com", "outlook.com", "hotmail.com", "yahoo.com", "icloud.com", "qq.com", "163.com", "github.com")
"""Sites where everybody has a mailbox."""
COMMON_WORDS = PLAIN | word_set("""
specified interface defined supplied input asks session either experience via face balance wants keep data requests
above absl after agent alias allocate allocated allocator already another any api application appropriate are args
argument assigned attempting attention available avoid backend because been before below best binary branch bucket
build busy but bytes cache call called can cannot capability capacity capturing cause check checkpoint chunks class
command compiled compiler completed computation compute config coordinator could create created creating cublas cufft
cuinit current custom dataset deployment deprecated detected devices different directory does drained draining drivers
dtype due during dynamic enable enabled end engine environment epochs errors exception expected experiment factory
failed failure feedback find findings finished first fma following format found framework free from full function
future geforce gib gpus graph have healthy here home however http https identifier idle ignore image import init
initialized initializelog initializing install installed instead instructions interactive internal its keeps kernel
kwargs largest last leader len length library likely limit line lines llm load loaded loading log look loss main make
max maximum may message messages mib missing mode module more most mount near network new next nobody note numerical
object offline ok one onednn online only oom op open operations optimized origin other out own parameters params path
pci per person physical pid platform please plugin pod primary processes program prompt pytorch queue raise raised ran
rate read rebuild recent register registered removed request requested required reserved result results return
revision ring rule rules running runtimeerror same saved scoring scratch secondary seconds see set setting settings
shape shards shared sharing should shows since size slightly some something start started starting startup state
status stderr successfully such summary supported sure system tenant tensor tensorrt than them there time timeout
token tokenizer took total traceback trainer training tried try trying turn type unable unreachable upload use used
username userwarning using val value variable vllm waiting want wants weights what when which will without workflow
written you your zone attrs broadcasting buffer callback check compiler computer computing database execution
executor failures feature features functions group groups health interface label layer layers learning maintenance
memory name names networking operation operations os platform pool power problem proxy redis response restart room
selector server shutdown side socket store tensorboard tensors thread threads types version while parent caller peer
someone everyone today yesterday scheduler master kubernetes ray slurm spawner controller killed re pre non multi
sub self well cross
""")
"""What logs of many machines have in common: such a word names nobody outside its own field."""
COUNTED = word_set("""
usb rank gpu cuda cudnn nccl step epoch layer block stage fold fp bf float int uint tf utf complex sm cu py python jax
torch gen pcie nvlink rtx gtx tesla quadro titan driver level iter batch conv dense bfloat pool relu norm linear attn
head resnet vgg bert gpt llama yolo yolov efficientnet mobilenet densenet inception xception unet vit swin convnext
clip whisper wav qwen mistral mixtral phi gemma falcon deepseek dino sam opt bloom flan cifar mnist imagenet coco
worker cpu core thread stream task process device eth ib mlx bond lo docker veth br tty pts sda sdb nvme numa socket
slot bus port lane irq loop dm ttys iso md sha base adam fsdp zero tp pp dp ep job ps chief run trial version release
ubuntu debian rhel centos rocky linux windows cp lib libcudart test model input output x amd arm gfx mi part chunk
shard split seed ipv top rouge bleu f r p v h a l b t k q w u e c n s m z y i j o d g variablev matmul mul add bn fc isa
pstore
""")
"""Before a number: what programs count, types, models and devices; no hosts."""
NODE_STEMS = word_set("gpu node worker cpu server host machine compute box login cn")
"""Before a number of two digits or more: hosts."""
MIN_LONG_NUMBER_DIGITS = 8
"""Digits from which a number is no pid, port or count."""
VERSION_BEFORE = lazy(
    r"(?:[=~><!]=|version|cudnn|cuda|driver|nvml|library|runtime|release|\bv|nvidia-[\w-]+|-cu\d\d|tensorrt(?:[-_]\w+)*"
    r"|opencv[\w-]*|pillow|cublas|cufft|cusparse|cusolver|curand|nvrtc|nccl|onnxruntime[\w-]*|cub?pti)[ =:v'\"]*$",
    re.IGNORECASE,
)
"""Packages of NVIDIA and others have versions of four parts."""
CHECKSUM_BEFORE = lazy(
    r"(?:\b(?:sha(?:1|224|256|384|512)|md5(?:sum)?|blake2b?|checksum|e-?tag)\b[^\n]{0,120}?[ =:(@]"
    r"|git[_ -]?(?:version|sha|hash|commit)[\"']?[ =:(]{1,4}"
    r"|\b(?:digest|commit|rev|revision)[\"']?[ =:(]{1,4})[\"']?$",
    re.IGNORECASE,
)
"""What stands before the fingerprint of a file, which names nobody."""

_NAME = r"[A-Za-z_][\w.-]{0,63}"
_LIKE_HOST = r"(?=[A-Za-z-]{0,62}\d)[A-Za-z][A-Za-z0-9-]{2,62}(?:\.[A-Za-z][\w-]*){0,8}"
"""A name with a number in it, in places where other words may stand, too."""
_HOST = r"[A-Za-z](?:[\w.-]{0,61}\w)?(?:\[[\d,-]+\])?"
_PERSON = r"[A-Z][\w'-]+(?: [A-Z][\w.'-]+){1,2}"
_KNOWN_OWNERS = (
    "docs|blog|models|datasets|spaces|papers|api|join|settings|huggingface|meta-llama|facebook|google|openai"
    "|openai-community|microsoft|nvidia|mistralai|Qwen|deepseek-ai|stabilityai|EleutherAI|bigscience|tiiuae"
    "|google-bert|google-t5|FacebookAI|distilbert|sentence-transformers|HuggingFaceH4|HuggingFaceTB|HuggingFaceFW"
    "|HuggingFaceM4|allenai|black-forest-labs|runwayml|CompVis|TheBloke|unsloth|timm|laion|tensorflow|pytorch|NVIDIA"
    "|BAAI|THUDM|zai-org|internlm|moonshotai|bigcode|mosaicml|databricks|NousResearch|llava-hf|01-ai|stanfordnlp"
    "|Salesforce|intfloat|ibm-granite|CohereForAI|CohereLabs|tatsu-lab|lmsys|openbmb|vllm|lmsysorg|rayproject"
)
"""Owners of models and images that everybody uses, and pages of their site."""
PUBLIC_NAME = lazy(
    rf"(?!models/|datasets/|spaces/|.*\.(?:{SUFFIXES})$)(?:(?:docker\.io|nvcr\.io|ghcr\.io|quay\.io|gcr\.io)/)?(?:{_KNOWN_OWNERS})(?:/[\w.-]+){{1,2}}(?:[:@][\w.:-]+)?"
)
"""A public model, data set or image."""

NOUNS = {
    "user": (
        "user acct login logname owner author account submitter requester assignee committer maintainer principal",
        "creator|submittedby|submitted_by|requested_by|startedby|started_by|createdby|created_by|launched_by|owned_by"
        "|github_actor|assigned_to|mail-user|run_as",
    ),
    "host": (
        "host computer domain workgroup fqdn",
        "master_addr|masteraddr|main_process_ip|submit_host|exec_host|exec_vnode|rdzv_endpoint|rdzv-endpoint",
    ),
    "job": (
        "pod namespace project experiment exp deployment statefulset daemonset",
        "rdzv_id|rdzv-id|submission_id|submission-id|service account|serviceaccount|stepid",
    ),
    "id": (
        "bucket database tenant organisation organization org team workspace entity cluster subscription",
        "resource_group|resourcegroup|resource-group|resource group|key vault"
        "|github_repository|ci_project_path|conda_default_env|singularity_name"
        "|runner_description|wandb_group|wandb-group|log_group|ssid",
    ),
    "serial": ("serial", "service tag|asset tag|board id|boardid|imei|s/n|serialnumber"),
    "image": ("image repository repo", ""),
}
"""By kind: nouns that end the name of a field, alone or with ``name``, ``id``, ``list`` behind, and whole ends."""
_NEEDS_FORM = {
    "user": "role",
    "host": "node server machine peer instance alias gateway worker master head controller endpoint remote nodes",
    "job": "reservation job runner run container service release queue study sweep artifact workflow",
}
"""Nouns of other things, too: a name has a digit, a hyphen or an underscore, or ``name`` stands behind the noun."""
_KIND = {noun: kind for kind, (nouns, _) in NOUNS.items() for noun in nouns.split()}
_KIND |= {end: kind for kind, (_, ends) in NOUNS.items() for end in ends.split("|") if end}
_FORM_KIND = {noun: kind for kind, nouns in _NEEDS_FORM.items() for noun in nouns.split()}
_NOUN = lazy("|".join(sorted(map(re.escape, _KIND | _FORM_KIND), key=len, reverse=True)))
_AFTER = lazy(
    r"(?P<more>[ _.-]?(?:names?|ids?|list|addr|login|host|hosts|number|no|path|description)|s|\(s\))?+(?![\w-])"
    r"(?:(?P<sign>[\"'\\\])]{0,4}[ \t]{0,60}(?:[. ]{2,60}:|=>|[:=]|\\u003d)[ \t]{0,30})|(?P<tag>>)"
    r"|(?P<blank>[ \t]{1,4}))"
    r"(?P<open>[\"'\\<\[(\u2018]{0,4})(?:\d{1,3}\*)?(?P<value>\w(?:[\w.:/@+-]*\w)?(?:\[[\d,-]+\])?)"
    r"(?P<close>[\"'\\>\u2019]?)(?P<next>\(?.?)"
)
_MORE_HOSTS = lazy(
    rf"[\"'\\]{{0,2}}(?::\w+|=\d+|/\d+)*(?:\*\d+)?\)?[\"'\\]{{0,2}}[,+ ] ?\(?[\"'\\]{{0,2}}(?:\d+\*)?({_LIKE_HOST})"
)
_NO_NAME = lazy(
    r"(?:self|cls|args|cfg|config|opts?|options|params|settings|ctx|os|hparams|flags|FLAGS|tf|torch|np)\.\w.*"
    r"|0x[0-9a-f]{1,15}|\d*\.\d+(?:\.\d+)?|None|True|False"
)
"""An attribute, an address, a version."""
_SCHEME = lazy(r"[a-z]{2,8}:/{1,2}")
_FORM = lazy(r"(?=[A-Za-z_.-]*\d|[A-Za-z\d.-]+_|[A-Za-z0-9]+-[A-Za-z0-9]+)[A-Za-z][\w.-]*")


_ARGUMENTS = lazy(r"\[((?:'[^'\n]*'|\"[^\"\n]*\")(?:, (?:'[^'\n]*'|\"[^\"\n]*\"))+)\]")
_SEPARATOR = lazy(r"['\"], ['\"]")
_HEADINGS = lazy(
    r" *(?=[A-Z%+].*\b(?:PID|JOBID|COMMAND|CMD|ST|STATE|STATUS|TIME|PARTITION|NAME|TTY|CPU|MEM)\b)"
    r"(?:[A-Z%+][A-Z0-9%()_/:+-]*(?: +|$)){2,20}$"
)
_HEADING_KIND = {"USER": "user", "OWNER": "user", "LOGIN": "user", "USERNAME": "user", "HOST": "host", "NODE": "host"}


def names_in(text: str) -> Iterator[tuple[str, str, str]]:
    """Kind and name of what ``text`` names, and the name with what tells it, for names that are words elsewhere."""
    # Arguments as Python prints them are also searched as the command line that they are.
    text += "".join("\n" + _SEPARATOR.sub(" ", match[1][1:-1]) for match in _ARGUMENTS.finditer(text))
    forms = [pattern for kind, _, pattern in private_name_rows() if kind == "line"]
    columns: dict[int, str] = {}
    for line in text.split("\n"):
        if _HEADINGS.match(line):
            columns = {at: _HEADING_KIND[name] for at, name in enumerate(line.split()) if name in _HEADING_KIND}
        elif columns:
            cells = line.split()
            if len(cells) <= max(columns):
                columns = {}
            for at, kind in columns.items():
                if re.fullmatch(rf"{_NAME}\+?", cells[at]):
                    yield kind, cells[at].rstrip("+"), ""
        for pattern in forms:
            if (form := pattern.match(line)) is not None:
                for kind, name in form.groupdict().items():
                    yield kind.partition("_")[0], name or "none", ""
    yield from _named_values(text)
    for kind, hints, pattern in private_name_rows():
        if kind == "line":
            continue
        seen = -1
        for begin, end in _lines_with(text, hints, more=kind.endswith("+")):
            if begin > seen:
                seen = begin
                for match in pattern.finditer(text, begin, end):
                    for name in match.groups():
                        if name:
                            yield kind.rstrip("+"), name, match[0]


def _lines_with(text: str, hints: tuple[str, ...], *, more: bool) -> list[tuple[int, int]]:
    """Where the lines with a hint begin and end; with ``more``, each with the line below it."""
    found: dict[int, int] = {}
    for hint in hints:
        at = text.find(hint)
        while at >= 0:
            end = text.find("\n", at)
            end = text.find("\n", end + 1) if more and end >= 0 else end
            end = end if end >= 0 else len(text)
            found[text.rfind("\n", 0, at) + 1] = end
            at = text.find(hint, end)
    return sorted(found.items())


def _named_values(text: str) -> Iterator[tuple[str, str, str]]:
    """``nodeName: x``, ``--job-name x``, ``"user": "x"``, ``pod "x"``, ``<serial>x``."""
    lowered = text.lower()
    if len(lowered) != len(text):
        lowered = text
    for hit in _NOUN.finditer(lowered):
        start, end = hit.span()
        before = text[start - 1 : start]
        if before.isalnum() and not (before.islower() and text[start].isupper()):
            continue
        match = _AFTER.match(lowered, end)
        if match is None or (match["tag"] and before not in ("<", "_")):
            continue
        if match["blank"] and not match["open"]:
            begin = start
            while begin and (text[begin - 1].isalnum() or text[begin - 1] in "-_"):
                begin -= 1
            if not text.startswith("--", begin):
                yield from _after_noun(text, hit[0], start, match)
                continue
        yield from _value(text, hit[0], start, match)


def _value(text: str, noun: str, start: int, match: re.Match[str]) -> Iterator[tuple[str, str, str]]:
    begin, end = match.span("value")
    value, then = text[begin:end], match["next"]
    kind = _KIND.get(noun) or _FORM_KIND[noun]
    if kind == "host":
        value = _SCHEME.sub("", value).partition("/")[0].partition(":")[0]
        begin = text.find(value, begin)
        end = begin + len(value)
    elif then[:1] in ("=", "[", "{") or (then[:1] == "(" and not then[1:].isdigit()):
        return
    if (_NO_NAME.fullmatch(value) and kind != "serial") or (
        text.startswith("/", start - 1) and noun in ("job", "host")
    ):
        return
    whole = text[start:end]
    if value.lower() in COMMON_WORDS and not (
        match["sign"] and (match["open"] or "=" in match["sign"] or not then.strip())
    ):
        return
    if match["blank"] and value.isupper() and value.isalpha():
        return  # the usage of a program: --name NAME
    if "(" in match["open"] and not _looks_like_host(value) and (noun in _FORM_KIND or value[0].isupper()):
        return  # "Error from server (Forbidden)"
    if value[0].isupper() and value[1:].islower() and not match["open"] and text[end : end + 1] == " ":
        return  # a sentence after a colon
    sure = noun in _KIND or (match["more"] or "").strip(" _.-") in ("name", "id", "list", "addr", "host", "hosts")
    if kind == "host":
        sure = sure or bool(noun in ("machine", "server") and match["open"] and not match["sign"])
        if (sure and "_" not in value) or _looks_like_host(value):
            yield kind, value, whole
        at = end
        while more := _MORE_HOSTS.match(text, at):
            at = more.end()
            if not is_numbered_name(more[1]):
                yield kind, more[1], more[1]
    elif kind == "image":
        if "/" in value:
            yield kind, value, whole
    elif sure or _FORM.fullmatch(value) or (match["open"] and not match["sign"] and noun != "run") or value.isdigit():
        for part in value.split("/") if kind in ("job", "id") and value.count("/") == 1 else (value,):
            if "/" not in part and not (kind == "serial" and ":" in part):
                yield kind, part, whole


_STEM = lazy(r"([A-Za-z]+)(?:[-_.]?[\d.]+[A-Za-z]{0,2})*")
_HYPHENS = lazy(r"[a-z]+(?:-[a-z0-9]+)+")
_HEX = lazy(r"[a-f\d-]+")
_NODE = lazy(
    r"(?:[a-z]{2,}(?:-[a-z]+)*-?\d{2,5}|[a-z]{2,}(?:-[a-z]{1,12}){0,3}\d*(?:-(?!v\d)[a-z]?\d{1,5}){1,5})[a-z]?(?:\.[a-z][\w.-]*)?"
)


def _looks_like_host(name: str) -> bool:
    return (
        bool(re.fullmatch(_HOST, name))
        and "_" not in name
        and not is_numbered_name(name)
        and any(map(str.isdigit, name))
    )


def looks_like_node(name: str) -> bool:
    """Whether a word between others may be the name of a node, and is not of words that programs have."""
    words = [part.rstrip("0123456789") for part in name.partition(".")[0].split("-")]
    known = [word in COMMON_WORDS or word in COUNTED for word in words if len(word) > 1]
    hosts = any(word in NODE_STEMS for word in words)
    return bool(_NODE.fullmatch(name) or _HYPHENS.fullmatch(name)) and not (
        is_numbered_name(name) or _HEX.fullmatch(name) or (known and known[0] and not hosts)
    )


def is_numbered_name(name: str) -> bool:
    """Whether a name is of what programs number, such as ``rank3``, or a model or type, such as ``resnet50``."""
    stem = _STEM.fullmatch(name)
    word = stem[1].lower() if stem else ""
    if word in NODE_STEMS and re.search(r"\d\d", name):
        return False
    return word in COUNTED or word in COMMON_WORDS


_OF = lazy(r"(?:\b(?:of|by|as|for|from|to|user|to the|that)|^|[:;(,.]) ?(?:the )?$", re.IGNORECASE)
_THEN = lazy(
    r"[ .,;:)'\u2019]*(?:$|\n|[.,;:)'\u2019] ?"
    r"|\s(?:is|has|may|does|did|was|not|exceeded|for|uses?|holds?|on|from|at|in|lost|died|went|failed|exited|timed)\b)"
)


def _after_noun(text: str, noun: str, start: int, match: re.Match[str]) -> Iterator[tuple[str, str, str]]:
    """``of user x``, ``node gpu07 is down``, ``entity x not found``: what follows a noun in a sentence."""
    begin, end = match.span("value")
    name = text[begin:end].partition(":")[0]
    kind = _KIND.get(noun) or _FORM_KIND[noun]
    if name.lower() in COMMON_WORDS or match["next"][:1] in ("(", "=", "[") or match["more"] not in (None, "", "s"):
        return
    if kind == "host":
        name = name.partition("/")[0]
        if looks_like_node(name) or (_looks_like_host(name) and _THEN.match(text, end)):
            yield kind, name, name
    elif kind == "user":
        good = (
            re.fullmatch(_NAME, name)
            and len(name) > 2
            and not name[0].isupper()
            and noun in ("user", "owner", "account")
        )
        if good and (_OF.search(text[max(0, start - 12) : start]) or _THEN.match(text, end)):
            yield kind, name, name
    elif kind == "serial":
        if re.fullmatch(r"(?=[A-Z]*\d)[A-Z0-9]{8,20}", name):
            yield kind, name, name
    elif kind in ("job", "id"):
        goes_on = noun in _KIND and (_THEN.match(text, end) or text.startswith((" of ", " could "), end))
        named = "-" in name and (noun == "bucket" or (goes_on and COMMON_WORDS.isdisjoint(name.lower().split("-"))))
        numbered = any(map(str.isdigit, name)) or name.count("-") > 1 or "_" in name or named
        if (noun == "entity" and ("/" in name or text.startswith((" not ", " does "), end))) or (
            "/" not in name and numbered and _FORM.fullmatch(name) and not is_numbered_name(name)
        ):
            for part in name.split("/"):
                yield kind, part, part


@cache
def private_name_rows() -> tuple[tuple[str, tuple[str, ...], re.Pattern[str]], ...]:
    """The rows of ``private_names.txt``; those of whole lines have the kind ``line``."""
    parts = {"NAME": _NAME, "LIKE HOST": _LIKE_HOST, "HOST": _HOST, "PERSON": _PERSON, "KNOWN OWNERS": _KNOWN_OWNERS}
    found = []
    for line in Path(__file__).with_name("private_names.txt").read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            kind, hints, text = line.split("\t")
            for name, part in parts.items():
                text = text.replace(f"<{name}>", part)
            found.append((kind, tuple(hints.split("|")), lazy(text, re.MULTILINE)))
    return tuple(found)


USER_AT_HOST = lazy(
    rf"(?<![\w.+/@-])({_NAME})@(?!v?\d|@|GLIBC|CXX)([A-Za-z][\w-]{{1,63}})(?![\w-]|[\w.-]*/|\.(?:service|socket|target))"
)
"""``alice@node07``, in prompts and commands of ssh."""
HOST_AT = lazy(r"(?<=[\w.-])@([\w.-]{1,255}+):[~/]", re.ASCII)
PROMPT = lazy(r"(?<![\w./])([A-Za-z][\w.-]{0,63})@[\w.-]{1,255}+:[~/]")
USER_IN_TEXT = lazy(
    r"\bprocess \d{1,9}(?:, \d{1,9}){0,99} of ([A-Za-z_][\w.-]{0,63}(?:, [A-Za-z_][\w.-]{0,63}){0,99}?)"
    r"(?=,? (?:held|or)\b|;|$)"
    r"|\bpid \d{1,9}(?: \(|, )([A-Za-z_][\w.-]{0,63})\)"
)
"""How ``diagnosis.memory.memory_holders`` names the owner of a process, which may have exited since."""

_UUID = r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}"
_SHORT_UUID = r"[0-9a-fA-F]{4,8}(?:-[0-9a-fA-F]{1,12})*+"
GPU_UUID = lazy(rf"(?<![A-Za-z0-9])((?:MIG-)?GPU|MIG)-({_UUID}|{_SHORT_UUID})(?![A-Za-z0-9-])")
LONG_ID = lazy(rf"(?<![A-Za-z0-9])(?:{_UUID}|(?=[0-9]*[a-f])[0-9a-f]{{20,}})(?![A-Za-z0-9])")
MAIL = lazy(r"(?<![\w.+-])[\w.+-]+@[\w-]+(?!\.(?:service|socket|target|timer)\b)(?:\.[\w-]+)+")
URL = lazy(r"([A-Za-z][\w+.-]{0,20}://)([^\s/'\"<>?#]*)([^\s'\"<>]*)")
IPV4 = lazy(r"(?<![\w.-])(?:\d{1,3}\.){3}\d{1,3}(?!\w|-(?!\d{2,5}\b)|\.\d)")
IPV6 = lazy(
    r"(?:(?<![\w:.])|(?:(?<=[a-z]\d:)|(?<=[a-z]\d\d:))(?=[\da-fA-F:]{3,45}[<%]))"  # NCCL: eth0:fe80::1%eth0<0>
    r"[0-9a-fA-F]{0,4}(?::[0-9a-fA-F]{0,4}){2,7}(?![\w:.])"
)
PATH = lazy(r"(?<![\w.%/~)\]-])(?!(?<=<)/[\w:.-]{1,60}>)(~?)(?!//)(/[^\s:;,'\"<>|()\[\]{}=*?!&$`\\#]+)(?=(:?))")
UNC = lazy(r"(?<![\w\\:])(\\{2,4})([A-Za-z][\w.-]{1,62})((?:\\{1,2}[^\s\\/:;,'\"<>|()]+)+)")
DRIVE = lazy(r"(?<![\w])([A-Za-z]:)((?:[\\/]{1,2}[^\s\\/:;,'\"<>|()]+)+)")
_DOMAINS = (
    "com|org|net|edu|gov|mil|ai|cloud|local|internal|lan|corp|cluster|home|arpa"
    "|de|fr|uk|ch|at|nl|se|eu|cn|jp|kr|in|au|ca|us"
)
FQDN = lazy(
    rf"(?<![\w./@-])((?=[\w.-]*[\d-])(?:[A-Za-z0-9](?:[\w-]{{0,61}}[A-Za-z0-9])?\.){{1,8}}(?:{_DOMAINS})"
    r"|(?=[\w.-]*[\d-])(?:[A-Za-z0-9][\w-]{0,62}\.){2,8}(?:io|dev|info|no|fi|dk|pl|cz|it|es|pt|be|ie|ru|br|sg|tw|hk|il|za|nz|science|tech)"
    r"|(?:[A-Za-z][\w-]{0,62}\.){1,8}(?:com|edu|gov|mil|example|invalid)"
    r"|(?:[A-Za-z0-9][\w-]{0,62}\.){1,8}(?:internal|intra|corp|hpc|prod|svc)\.[a-z]{2,12}"
    r"|(?:[A-Za-z0-9][\w-]{0,62}\.){1,8}(?:lan|internal|corp|intra)"
    # Cut short before its end:
    r"|(?!lib)[A-Za-z][A-Za-z-]{0,30}\d{2,6}\.(?:[a-z][a-z0-9-]{0,62}\.){1,7}[a-z0-9-]{0,62}(?=…))(?![\w-]|\.\w|\()"
)
MAC = lazy(
    r"(?<![\w:.])(?:(?:[0-9A-Fa-f]{2}[:-]){5}[0-9A-Fa-f]{2}|(?=[\d.]*[a-f])(?:[0-9a-f]{4}\.){2}[0-9a-f]{4})(?![\w:])"
)
