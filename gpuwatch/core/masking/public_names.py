"""Names that ``--redact`` leaves, because they are the same on many machines and name nobody."""

from __future__ import annotations

import re

from gpuwatch.core.parsing import lazy, word_set

PUBLIC_SITES = (
    "nvidia.com", "tensorflow.org", "pytorch.org", "python.org", "pypi.org", "keras.io", "docker.com", "kernel.org",
    "google.com", "kubernetes.io", "docs.rs", "readthedocs.io", "ubuntu.com", "debian.org", "huggingface.co",
    "githubusercontent.com", "ray.io", "vllm.ai", "pypa.io", "amd.com",
)  # fmt: skip
"""Sites that logs and advice link to."""
PUBLIC_HOSTS = (
    *PUBLIC_SITES, "github.com", "gitlab.com", "bitbucket.org", "docker.io", "nvcr.io", "ghcr.io", "quay.io", "gcr.io",
    "k8s.io", "anaconda.org", "conda.io", "wandb.ai", "kaggle.com", "pythonhosted.org",
)  # fmt: skip
"""Hosts that name nobody; what stands behind them may."""
PUBLIC_ADDRESSES = frozenset({"8.8.8.8", "8.8.4.4", "1.1.1.1", "1.0.0.1", "9.9.9.9"})
"""Resolvers of domain names."""
PUBLIC_REPOSITORIES = ("/tensorflow/", "/pytorch/", "/nvidia/", "/keras-team/", "/openxla/")
SYSTEM_FOLDERS = (
    "/usr/lib", "/usr/lib64", "/usr/bin", "/usr/share", "/lib", "/lib64", "/bin", "/sbin", "/proc", "/sys", "/dev",
    "/etc", "/run", "/boot",
)  # fmt: skip
"""Folders that are the same everywhere: paths in them stay."""
TENSORFLOW_DEVICES = frozenset(
    {"job", "replica", "task", "device", "gpu", "cpu", "physical_device", "xla_cpu", "xla_gpu"}
)
"""``/job:localhost`` and ``/GPU:0`` are TensorFlow devices, not paths."""
KNOWN_PACKAGES = (
    "nvidia", "tensorflow", "torch", "keras", "triton", "jax", "numpy", "xla", "tf_keras", "gpuwatch", "transformers",
    "accelerate", "diffusers", "datasets", "peft", "trl", "deepspeed", "vllm", "sglang", "ray", "lightning",
    "pytorch_lightning", "ultralytics", "sklearn", "scipy", "pandas", "PIL", "cv2", "flax", "optax", "timm",
    "huggingface_hub", "tokenizers", "safetensors", "bitsandbytes", "xformers", "flash_attn", "einops", "h5py", "wandb",
    "matplotlib", "tqdm", "absl", "requests", "urllib3", "pydantic", "fastapi", "uvicorn", "starlette", "gradio",
    "click", "mlflow", "hydra", "omegaconf", "psutil", "pynvml", "cupy", "numba", "apex", "IPython", "mxnet",
)  # fmt: skip
COMMON_PATH_PARTS = word_set(
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
KNOWN_NAMES = frozenset(name.lower() for name in KNOWN_PACKAGES) | COMMON_PATH_PARTS | {"huggingface", "openai"}
SERVER_ROUTE = lazy(
    r"/(?:v\d(?:/[a-z_]+){0,3}|metrics|health[a-z_]*|generate[a-z_]*|docs(?:/oauth2-redirect)?|redoc|openapi\.json|ping"
    r"|version|(?:de)?tokenize|invocations|score|rerank|pooling|classify|api/(?:generate|chat|tags|show|version|ps|pull))"
)
"""What model servers answer to."""
FRAMEWORK_SOURCES = lazy(
    r"(?:tensorflow|tensorflow_core|xla|tsl|torch|keras)/(?:core|python|compiler|stream_executor|framework|csrc|cuda|nn"
    r"|src|engine|backend|_inductor|_dynamo)/"
    r"|(?:c10|caffe2)/\w+/|aten/src/|csrc/(?=\w)|sglang/srt/|vllm/(?:v1|engine|worker|entrypoints|model_executor)/"
)
"""Where a framework's sources begin in a path of its build machine."""
COMMON_PATH_PART_FORM = lazy(
    r"lib[\w+-]+(?:\.so|\.a)[\d.]*|python\d*(?:\.\d+)*|cuda-?[\d.]*|v?\d+(?:\.\d+)*|[\w-]+\.dist-info|nvidia[\w.-]*"
)
SUFFIXES = "py|sh|ipynb|ya?ml|json|toml|cfg|ini|h5|keras|pt|pth|ckpt|npz|npy|csv|parquet|tfrecord"
SCRIPT_FILE = lazy(rf"[\w.-]+\.(?:{SUFFIXES})")
SYSTEM_ACCOUNTS = word_set("""
root nobody daemon bin sys sync games man lp mail news uucp proxy www-data backup list irc gnats messagebus syslog sshd
systemd-network systemd-resolve systemd-timesync dbus polkitd chrony nvidia-persistenced nvidia-fabricmanager gdm xrdp
postgres mysql redis slurm munge docker containerd kubelet jovyan jupyter ubuntu debian centos fedora ec2-user azureuser
opc vagrant runner sudo adm wheel video render staff users tty disk cdrom plugdev kvm input lxd
""")
"""Accounts of systems and images, not of persons."""
SYSTEMD_UNIT_PREFIXES = ("slot", "systemd-", "modprobe", "getty", "serial-getty", "user")
"""Beginnings of systemd's unit templates, whose instances stand after an @ as hosts do."""
WORD_NAMES = word_set("""
root nobody gpu cpu cuda nvidia python tensorflow torch keras docker local localhost test user users admin train default
data model run node server host machine driver device process memory growth
""")
"""Names that are also words: replaced only in their own fields and in paths."""
NOT_NAMES = word_set(
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
MAIL_PROVIDER = lazy(
    r"(?:[\w-]+\.)*(?:(?:gmail|googlemail|yahoo|ymail|hotmail|outlook|protonmail|yandex|gmx)\.(?:com?\.)?(?:com|net|[a-z]{2})"
    r"|(?:icloud|me|mac|live|msn|aol|mail|zoho|fastmail|tutanota|hey|github|qq|163|126|139|foxmail|tencent|rediffmail)\.com"
    r"|(?:hanmail|daum|laposte)\.net|(?:web|t-online|freenet|posteo)\.de|(?:free|orange|wanadoo)\.fr|proton\.me"
    r"|mailbox\.org|mail\.ru|libero\.it|naver\.com|sina\.c(?:n|om)|sohu\.com)(?![\w-]|\.\w)",
    re.IGNORECASE,
)
"""Sites where everybody has a mailbox, and their servers: ``gmail.com``, ``smtp.gmail.com``, ``yahoo.co.jp``."""
COMMON_WORDS = NOT_NAMES | word_set("""
specified interface defined supplied input asks session either experience via face balance wants keep data requests
above absl after agent alias allocate allocated allocator already another any api application appropriate are args
argument assigned attempting attention available avoid backend because been before below best binary branch bucket build
busy but bytes cache call called can cannot capability capacity capturing cause check checkpoint chunks class command
compiled compiler completed computation compute config coordinator could create created creating cublas cufft cuinit
current custom dataset deployment deprecated detected devices different directory does drained draining drivers dtype
due during dynamic enable enabled end engine environment epochs errors exception expected experiment factory failed
failure feedback find findings finished first fma following format found framework free from full function future
geforce gib gpus graph have healthy here home however http https identifier idle ignore image import init initialized
initializelog initializing install installed instead instructions interactive internal its keeps kernel kwargs largest
last leader len length library likely limit line lines llm load loaded loading log look loss main make max maximum may
message messages mib missing mode module more most mount near network new next nobody note numerical object offline ok
one onednn online only oom op open operations optimized origin other out own parameters params path pci per person
physical pid platform please plugin pod primary processes program prompt pytorch queue raise raised ran rate read
rebuild recent register registered removed request requested required reserved result results return revision ring rule
rules running runtimeerror same saved scoring scratch secondary seconds see set setting settings shape shards shared
sharing should shows since size slightly some something start started starting startup state status stderr successfully
such summary supported sure system tenant tensor tensorrt than them there time timeout token tokenizer took total
traceback trainer training tried try trying turn type unable unreachable upload use used username userwarning using val
value variable vllm waiting want weights what when which will without workflow written you your zone attrs broadcasting
buffer callback computer computing database execution executor failures feature features functions group groups health
label layer layers learning maintenance memory name names networking operation os pool power problem proxy redis
response restart room selector server shutdown side socket store tensorboard tensors thread threads types version while
parent caller peer someone everyone today yesterday scheduler master kubernetes ray slurm spawner controller killed re
pre non multi sub self well cross
""")
"""What logs of many machines have in common: such a word names nobody outside its own field."""
NUMBERED_WORDS = word_set("""
usb rank gpu cuda cudnn nccl step epoch layer block stage fold fp bf float int uint tf utf complex sm cu py python jax
torch gen pcie nvlink rtx gtx tesla quadro titan driver level iter batch conv dense bfloat pool relu norm linear attn
head resnet vgg bert gpt llama yolo yolov efficientnet mobilenet densenet inception xception unet vit swin convnext clip
whisper wav qwen mistral mixtral phi gemma falcon deepseek dino sam opt bloom flan cifar mnist imagenet coco worker cpu
core thread stream task process device eth ib mlx bond lo docker veth br tty pts sda sdb nvme numa socket slot bus port
lane irq loop dm ttys iso md sha base adam fsdp zero tp pp dp ep job ps chief run trial version release ubuntu debian
rhel centos rocky linux windows cp lib libcudart test model input output x amd arm gfx mi part chunk shard split seed
ipv top rouge bleu f r p v h a l b t k q w u e c n s m z y i j o d g variablev matmul mul add bn fc isa pstore
""")
"""Before a number: what programs count, types, models and devices; no hosts."""
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
KNOWN_OWNERS = (
    "docs|blog|models|datasets|spaces|papers|api|join|settings|huggingface|meta-llama|facebook|google|openai"
    "|openai-community|microsoft|nvidia|mistralai|Qwen|deepseek-ai|stabilityai|EleutherAI|bigscience|tiiuae"
    "|google-bert|google-t5|FacebookAI|distilbert|sentence-transformers|HuggingFaceH4|HuggingFaceTB|HuggingFaceFW"
    "|HuggingFaceM4|allenai|black-forest-labs|runwayml|CompVis|TheBloke|unsloth|timm|laion|tensorflow|pytorch|NVIDIA"
    "|BAAI|THUDM|zai-org|internlm|moonshotai|bigcode|mosaicml|databricks|NousResearch|llava-hf|01-ai|stanfordnlp"
    "|Salesforce|intfloat|ibm-granite|CohereForAI|CohereLabs|tatsu-lab|lmsys|openbmb|vllm|lmsysorg|rayproject"
)
"""Owners of models and images that everybody uses, and pages of their site."""
PUBLIC_NAME = lazy(
    rf"(?!models/|datasets/|spaces/|.*\.(?:{SUFFIXES})$)(?:(?:docker\.io|nvcr\.io|ghcr\.io|quay\.io|gcr\.io)/)?(?:{KNOWN_OWNERS})(?:/[\w.-]+){{1,2}}(?:[:@][\w.:-]+)?"
)
"""A public model, data set or image."""
