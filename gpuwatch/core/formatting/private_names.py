"""Where a text names a user, host, job or id: an option, a variable, a column, the form of a line.

To add one: a row in :data:`SAID` with its kind, what such a text has (so that most texts are not searched), a pattern
whose first group is the name, and a line in ``tests/reports/test_redaction.py``.
"""

from __future__ import annotations

import re

from gpuwatch.core.formatting.lazy_pattern import lazy

# How TensorFlow names its machine.
HOST_IN_TEXT = lazy(
    r"\bthis host \(([\w.-]{1,255}+)\)|\b[Hh]ost(?:name)?: (?=[A-Za-z])([\w.-]{1,255}+)"
    r"|(?<=[\w.-])@([\w.-]{1,255}+):[~/]"
)
PROMPT = lazy(r"(?<![\w./])([A-Za-z][\w.-]{0,63})@[\w.-]{1,255}+:[~/]")
USER_IN_TEXT = lazy(
    r"\bprocess \d{1,9}(?:, \d{1,9}){0,99} of ([A-Za-z_][\w.-]{0,63}(?:, [A-Za-z_][\w.-]{0,63}){0,99}?)"
    r"(?=,? (?:held|or)\b|;|$)"
    r"|\bpid \d{1,9}(?: \(|, )([A-Za-z_][\w.-]{0,63})\)"
)
"""How ``diagnosis.memory.memory_holders`` names the owner of a process, which may have exited since."""
_NAME = r"[A-Za-z_][\w.-]{0,63}"
_LIKE_HOST = r"(?=[A-Za-z-]{0,62}\d)[A-Za-z][A-Za-z0-9-]{2,62}(?:\.[A-Za-z][\w-]*){0,8}"
"""A name with a number in it, in places where other words may stand, too."""
_KNOWN_OWNERS = (
    "docs|blog|models|datasets|spaces|papers|api|join|settings|huggingface|meta-llama|facebook|google|openai|openai-community"
    "|microsoft|nvidia|mistralai|Qwen|deepseek-ai|stabilityai|EleutherAI|bigscience|tiiuae|google-bert|sentence-transformers"
    "|HuggingFaceH4|HuggingFaceTB|allenai|black-forest-labs|runwayml|TheBloke|unsloth|timm|laion"
)
"""Of models that everybody uses, and pages of the site itself."""
_VALUE = r"['\"]?([\w][\w.:/@+-]{0,254}?)(?=['\",;)\]]|:?\s|:?$)"
SAID: tuple[tuple[str, str, re.Pattern[str]], ...] = (
    ("user", "--", lazy(rf"--(?:user|username|owner|login|uid|as-user|account)[= ]+{_VALUE}")),
    (
        "user",
        ":|=",
        lazy(rf"\b(?:user ?name|user|owner|login|account|logged in as)['\"]?\s?[:=]\s*{_VALUE}", re.IGNORECASE),
    ),
    ("user", "=", lazy(r"\b(?:[A-Z]+_){0,4}(?:USER|USERNAME|LOGNAME|SLURM_JOB_ACCOUNT)=([\w.-]+)")),
    (
        "job",
        "--",
        lazy(
            r"--(?:(?:job[-_]?|container[-_]?)?name|run[-_]?name|exp(?:eriment)?(?:[-_]name)?|project|rdzv[-_]id|comment|wandb[-_]\w+)"
            rf"[= ]+{_VALUE}"
        ),
    ),
    ("job", "=", lazy(rf"\b(?:SLURM_|PBS_|LSB_|JOB_|POD_|KUBERNETES_|WANDB_|MLFLOW_)[A-Z_]+=(?!\d+\b){_VALUE}")),
    ("job", ":|=", lazy(rf"\b(?:job ?name|pod|namespace|experiment|run name)['\"]?\s?[:=]\s*{_VALUE}", re.IGNORECASE)),
    (
        "host",
        "=",
        lazy(r"\b(?:MASTER_ADDR|hostname|(?:\w{1,20}_)?(?:HOST|HOSTS|HOSTNAME|NODE_?NAME|NODELIST))=([\w.,-]+)"),
    ),
    ("host", "=", lazy(r"\b(?:NodeName|NodeList|BatchHost|NodeAddr|NodeHostName|ReqNodeList|ExcNodeList)=([\w.,-]+)")),
    ("host", "DISPLAY=", lazy(r"\bDISPLAY=([A-Za-z][\w.-]*):\d")),
    # In commands, only what looks like a host.
    ("host", "scp |rsync |sftp ", lazy(rf"\b(?:scp|rsync|sftp) [^\n|;&]{{0,200}}?(?<=[ @])({_LIKE_HOST}):")),
    ("host", "ssh ", lazy(rf"\bssh (?:-\w+ (?:\d+ )?)*(?:{_NAME}@)?({_LIKE_HOST})(?= |$)")),
    ("user", "ssh ", lazy(rf"\bssh (?:-\w+ (?:\d+ )?)*({_NAME})@{_LIKE_HOST}(?= |$)")),
    ("host", "srun|sbatch|salloc", lazy(r"\b(?:srun|sbatch|salloc) [^\n]{0,200}?(?<= )-w[ =]([A-Za-z][\w.,-]*)")),
    ("host", "scontrol ", lazy(r"\bscontrol [^\n]{0,80}?\bnodes? ([A-Za-z][\w.-]*)")),
    ("host", "]:", lazy(r"\[([A-Za-z][\w-]*(?:\.[\w-]+)*)\]:\d{2,5}\b")),
    ("host", "<", lazy(r"\b[Cc]onnect(?:ed|ion)? (?:to|from) ([A-Za-z][\w.-]*)<\d")),
    ("host", "wandb: Host ", lazy(r"\bwandb: Host ([\w.-]+)")),
    (
        "host",
        " on | to | at ",
        lazy(
            r"\b(?:[Rr]unning|[Ss]tarted|[Ww]orker|[Pp]rocess|[Tt]asks?|[Rr]anks?|[Jj]obs?|[Ff]ailed|[Cc]onnect(?:ed|ing)?|[Dd]ied)"
            r" (?:on|to|at) (?!(?:ubuntu|debian|rhel|centos|rocky|linux|cuda|python|torch|tensorflow|step|epoch)\b)"
            r"([A-Za-z][A-Za-z0-9]*-(?=[A-Za-z-]*\d)[A-Za-z0-9-]+)(?![\w./-])"
        ),
    ),
    (
        "host",
        "-gpu|-node|-dgx|-cn|-compute|-login|-srv|-worker|-box|-host",
        lazy(
            r"(?<![\w./-])([a-z][a-z0-9]{1,30}-(?:gpu|node|dgx|cn|compute|login|srv|worker|box|host)s?-?\d{1,4})(?![\w/-])"
        ),
    ),
    ("host", "--include", lazy(rf"--include[= ]['\"]?({_LIKE_HOST}):\d")),
    ("host", "host=", lazy(r"\bhost=['\"]([\w.-]+)['\"]")),
    ("host", " known: ", lazy(r"\bnot known: ['\"]?([\w.-]+)")),
    ("host", "ank ", lazy(rf"\b[Rr]ank \d+ (?:on|@) ({_LIKE_HOST})(?= |$)")),
    (
        "host",
        "host |ode |orker |erver |ember |eer |achine |odes ",
        lazy(
            rf"\b(?:[Hh]ost|[Nn]odes?|[Ww]orker|[Ss]erver|[Mm]ember|[Pp]eer|[Mm]achine) ['\"\u2018]?({_LIKE_HOST})"
            r"(?=:\d{4,5}\b| \(|['\"\u2019]| (?:not|is|has|did|does|went|was|timed|failed)\b| --)"
        ),
    ),
    ("host", "ame: ", lazy(r"\b(?i:(?:machine|computer|host) ?name): ([\w.-]+)")),
    ("host", "nodeName", lazy(r"\bnodeName['\"]?: *['\"]?([\w.-]+)")),
    (
        "host",
        "-|_|tcp",
        lazy(
            r"(?i:rdzv[-_]endpoint|master[-_]addr|nodelist|--node|--host(?:name)?)['\"]?[:= ]+['\"]?(?:tcp://)?([\w.-]+(?:\[[\d,-]+\])?)"
        ),
    ),
    ("host", "host ", lazy(r"^\s*host\s{2,}: ([\w.-]+)$", re.MULTILINE)),
    ("job", "sbatch|srun|salloc", lazy(r"\b(?:sbatch|srun|salloc) (?:[^\n]{0,200}? )?-J ?([\w.-]+)")),
    ("job", "kubectl|helm", lazy(r"\b(?:kubectl|helm) (?:[^\n]{0,200}? )?(?:-n|--namespace)[ =]([\w.-]+)")),
    # Of users, accounts and projects that schedulers and tools are asked about.
    (
        "user",
        " -u ",
        lazy(
            rf"\b(?:runuser|squeue|sacct|scancel|sshare|qstat|qdel|bjobs|bkill|crontab|pgrep|pkill|ps|loginctl)"
            rf" (?:[^\n|;&]{{0,80}}? )?-u ?({_NAME})"
        ),
    ),
    (
        "job",
        "qsub|bsub|sbatch|srun|salloc|qlogin",
        lazy(r"\b(?:qsub|bsub|sbatch|srun|salloc|qlogin) (?:[^\n]{0,200}? )?-[APG] ?([A-Za-z][\w.-]*)"),
    ),
    (
        "user",
        "user|passwd ",
        lazy(rf"\b(?:usermod|userdel|useradd|adduser|deluser|gpasswd)(?: -\w+(?: [\w,]+)?)* ({_NAME})(?=[\s;]|$)"),
    ),
    ("user", "setfacl", lazy(rf"\bsetfacl [^\n]{{0,80}}?\bu:({_NAME}):")),
    ("user", "whoami", lazy(rf"\bwhoami: ({_NAME})")),
    ("user", "wandb.ai/", lazy(r"(?<!docs\.)\bwandb\.ai/(?!site\b|authorize\b|settings\b)([\w.-]+)/")),
    ("user", "yncing run ", lazy(rf"\b[Ss]yncing run \S+ to ({_NAME})/")),
    ("id", "run id", lazy(r"\brun id:? ([a-z0-9]{8})\b")),
    ("user", "quota", lazy(rf"\bquotas? (?:for user|-u|-v -u) ({_NAME})")),
    ("user", "_NAME=", lazy(r"\bGIT_(?:AUTHOR|COMMITTER)_NAME=['\"]?([\w.-]+)")),
    ("user", "user.name", lazy(r"\buser\.name[= ]['\"]?([\w.-]+)")),
    ("user", "no such user", lazy(r"['\"\u2018]([\w.-]+)['\"\u2019]: no such user")),
    ("user", "/user/", lazy(r"(?<![\w/.-])/user/([\w.-]+)/")),
    (
        "user",
        " by ",
        lazy(
            r"\b(?:[Ss]ubmitted|[Ll]aunched|[Cc]ancelled|[Cc]ommit(?:ted)?|[Oo]wned) by "
            rf"(?!the\b|an?\b|user\b|signal\b|default\b)({_NAME})"
        ),
    ),
    ("id", "=|:", lazy(r"\b(?:account|subscription)[_ ]?id['\"]?\s?[:=]\s?['\"]?(\d{8,16})\b", re.IGNORECASE)),
    ("id", "project id", lazy(rf"\bproject id: {_VALUE}")),
    ("id", "ssid|SSID", lazy(rf"\b(?:ESSID|BSSID|SSID|ssid)['\"]?\s?[:=]\s?{_VALUE}")),
    ("id", "imei|IMEI", lazy(r"\b(?:imei|IMEI):?\s?(\d{15})\b")),
    ("user", " -l ", lazy(rf"\b(?:ssh|sftp|rlogin) (?:[^\n]{{0,100}}? )?-l ({_NAME})")),
    ("host", "on node ", lazy(r"\bon node ([\w.-]+) exited")),
    ("host", "pdsh ", lazy(r"\bpdsh [^\n]{0,80}?-w ([\w.,\[\]-]+)")),
    ("host", "tfevents.", lazy(r"\btfevents\.\d{10}\.([A-Za-z][\w-]*)")),
    ("host", "Linux ", lazy(r"\bLinux ([A-Za-z][\w.-]*) \d+\.\d+\.\d+\S* #\d")),
    ("host", ".io", lazy(r"(?<![\w.-])([\w-]+\.(?:azurecr|jfrog)\.io)\b")),
    (
        "image",
        "tagged |pull |ulling |push |ushed ",
        lazy(r"\b(?:tagged|[Pp]ull(?:ing)?|[Pp]ush(?:ing|ed)?) ([\w-]+(?:\.[\w-]+)+(?::\d+)?/[\w./-]+)"),
    ),
    ("serial", "SN:", lazy(r"\bSN: ?([A-Z0-9]{8,20})\b")),
    ("serial", ", ", lazy(r"\b(?:NVIDIA|Tesla|GeForce|Quadro)\b[^,\n]{0,60}, (\d{13})(?=,|$)", re.MULTILINE)),
    ("user", "id=", lazy(rf"\be?uid=\d+\(({_NAME})\)")),
    ("group", "gid=|groups=", lazy(rf"(?:\be?gid=|\bgroups=|(?<=\)),)\d+\(({_NAME})\)")),
    ("user", "M)", lazy(rf"(?:^|[| ])({_NAME})(?::[\w.-]+/\d+)?\(\d+M\)")),
    ("user", " user ", lazy(rf"\bfor (?:invalid )?user ({_NAME})")),
    (
        "user",
        " from ",
        lazy(rf"\b(?:publickey|password|keyboard-interactive/pam) for (?:invalid user )?({_NAME}) from "),
    ),
    (
        "user",
        "sudo|su |chown",
        lazy(rf"\b(?:sudo (?:-\w+ )*?-u |su - |chown (?:-\w+ )*)({_NAME})(?=[ :;]|$)"),
    ),
    ("user", "\\", lazy(rf"(?<![\w:\\/.])[A-Z][A-Z0-9-]{{2,14}}\\({_NAME})(?![\\\w])")),
    (
        "user",
        "Author: |Signed-off-by: |eserved by ",
        lazy(r"(?:Author: |Signed-off-by: |[Rr]eserved by )([A-Z][\w.'-]+(?: [A-Z][\w.'-]+){1,3})(?= <| until| for|$)"),
    ),
    ("host", "ostname", lazy(r"\bhostname['\"]\s?:\s*['\"]([\w.-]+)")),
    ("user", "UserId=", lazy(rf"\bUserId=({_NAME})\(")),
    ("user", "ogged in as ", lazy(rf"\b[Ll]ogged in as (?!an? |the )({_NAME})")),
    ("user", "~", lazy(r"(?<![\w/~.-])~([a-z_][\w-]{1,31})(?=/)")),
    ("user", "/", lazy(r"\barn:aws[\w:-]{0,80}:(?:user|role)/([\w.-]+)")),
    ("host", "] NCCL", lazy(r"(?<![\w.:/-])([A-Za-z][\w.-]*):\d+:\d+ \[\d+\] NCCL ")),
    ("host", "mount", lazy(r"\b(?:mount(?:\.nfs4?)?:|mounting|umount) ([A-Za-z][\w.-]{1,62}):/")),
    ("host", "Last login", lazy(r"\bLast login: .{0,60} from ([\w.-]+)")),
    ("host", "Permanently added", lazy(r"\bPermanently added '\[?([\w.-]+)")),
    ("host", "run |mpiexec", lazy(r"\b(?:mpirun|mpiexec|horovodrun|prun) .{0,200}?-(?:H|hosts?) ([A-Za-z][\w.:,-]*)")),
    ("host", " port ", lazy(r"\b(?:to|host|from) ([A-Za-z](?=[\w.-]*[\d-])[\w.-]*) (?:on )?port \d")),
    ("host", "publickey", lazy(r"(?<![\w@.-])([A-Za-z][\w.-]*): Permission denied \(publickey")),
    (
        "host",
        "ooku|esolv|each|ontact|ping ",
        lazy(
            r"\b(?:look(?:ing)? ?up|resolv(?:e|ing)|reach|contact(?:ing)?|ping) (?:host(?:name)? )?['\"]?"
            r"(?=[\w.-]*[\d-])([A-Za-z][\w.-]*\w)"
        ),
    ),
    ("host", "node/|nodes/", lazy(r"(?<![\w/.-])nodes?/([A-Za-z][\w.-]*\w)")),
    ("host", " to [", lazy(r"\bconnect(?:ed)? to \[([A-Za-z][\w-]*(?:\.[\w-]+)*)\]:\d")),
    ("host", "Node: ", lazy(r"\bNode: +([\w.-]+)/(?:ip-\d|\d{1,3}\.\d)")),
    (
        "host",
        "mage ",
        lazy(r"\b(?i:image) ['\"]?(?!(?:docker|nvcr|ghcr|quay|gcr)\.io/)([a-z][\w-]*(?:\.[\w-]+)+)(?::\d+)?/"),
    ),
    ("id", "projects/", lazy(r"\bprojects/([a-z][a-z0-9-]{4,29})/(?:zones|locations|regions|global|instances)\b")),
    ("id", "GUID", lazy(r"\bGUIDs?:? *(0x[0-9a-f]{16})\b")),
    ("host", "srun", lazy(r"\bsrun: (?:error: |warning: )?([\w.-]+(?:\[[\d,-]+\])?): tasks? ")),
    ("host", "CANCELLED|FAILED", lazy(r" ON ([\w.-]+) (?:CANCELLED|FAILED)")),
    (
        "host",
        ":6379|:294|:295|:8265|:10001|:12345|:2222",
        lazy(r"(?<![\w./@:-])([A-Za-z][\w-]{1,62}(?:\.[\w-]+)*):(?:6379|29[45]\d\d|8265|10001|12345|2222)(?!\d)"),
    ),
    ("host", "]", lazy(r"(?<![\w./-])([A-Za-z][\w-]{0,40}\[(?=[\d,-]*(?<![1-9])0\d)\d{1,5}(?:[-,]\d{1,5})+\])")),
    ("job", "ssigned", lazy(r"[Aa]ssigned [\w.-]+/([\w.-]+) to ")),
    ("host", "ssigned", lazy(r"[Aa]ssigned [\w.-]+/[\w.-]+ to ([\w.-]+)")),
    ("job", "-", lazy(r"(?<![\w.-])([a-z][a-z0-9-]{1,50}-(?=[a-z]*\d)[a-f0-9]{8,10}-[a-z0-9]{5})(?![\w-])")),
    ("job", "wandb", lazy(r"\bwandb: .{0,8}?(?:Syncing run|View run|Resuming run|Run name:) (?!at )([\w.-]+)")),
    ("job", "run-", lazy(r"\brun-\d{8}_\d{6}-([a-z0-9]{6,12})\b")),
    ("job", "logged in as", lazy(r"logged in as:? \S+ \(([\w.-]+)\)")),
    ("id", "arn:", lazy(r"\barn:aws[\w-]*:[\w-]*:[\w-]*:(\d{12}):")),
    ("id", ".dkr.ecr.", lazy(r"\b(\d{12})\.dkr\.ecr\.")),
    ("host", "\\\\", lazy(r"(?<![\w\\:])\\\\([A-Za-z][\w.-]{1,62})\\")),
    ("repository", "git@", lazy(r"\bgit@[\w.-]+:([\w.-]+/[\w.-]+?)(?=\.git\b|[\s'\"]|$)")),
    ("id", ":|=|#", lazy(r"\b(?i:ticket|jira|incident|case)(?: ?id)?\s?[:#=]\s*([A-Z]{1,10}-?\d{2,9})\b")),
    (
        "id",
        ":|=",
        lazy(
            r"\b(?:bucket|database|tenant|org|organi[sz]ation|team|workspace|entity|cluster|project)"
            rf"(?:[ _-]?(?:name|id))?['\"]?\s?[:=]\s*{_VALUE}",
            re.IGNORECASE,
        ),
    ),
    # "pod/x", 'namespace "x"', "cluster <x>", "Job x exceeded": a name that is no word.
    (
        "job",
        "pod|amespace|luster|roject|orkspace|ueue|eployment|ob |nstance|ucket|atabase|artition|un ",
        lazy(
            r"\b(?i:pod|namespace|cluster|project|workspace|queue|deployment|job|instance|bucket|database|run)s?[ /]"
            r"(?:['\"<]([\w.-]+)['\">]|(?=[A-Za-z_.-]*\d|[A-Za-z\d.-]+_|[a-z0-9]+-[a-z0-9]+-)([A-Za-z][\w.-]*\w)(?![\w/:(=]))"
        ),
    ),
    ("job", "ob", lazy(r"\b(?i:job)(?: ?id)? ?[#:=]? ?(\d{8,12})\b")),
    ("id", "INC|see |bug |issue ", lazy(r"\b(?:see|issue|bug|fixes) ([A-Z]{3,10}-\d{2,6})\b|\b(INC\d{6,10})\b")),
    ("id", "S-1-5-21", lazy(r"\b(S-1-5-21(?:-\d{1,12}){3,5})\b")),
    ("id", "SHA256:", lazy(r"\bSHA256:([A-Za-z0-9+/]{43})(?![A-Za-z0-9+/])")),
    (
        "id",
        "i-|l-|t-|c-|g-|p-",
        lazy(r"(?<![\w-])((?:i|vol|eni|subnet|vpc|sg|snap)-[0-9a-f]{17}|i-[0-9a-f]{8})(?![\w-])"),
    ),
    ("phone", "+", lazy(r"(?<![\w.+])(\+\d{1,3} \(?\d{2,5}\)?(?: \d{5,10}| \d{2,4}(?: \d{2,4}){1,3}))(?![ .]?\d)")),
    ("host", "resolve host", lazy(r"\bresolve host(?:name)?:? ([A-Za-z][\w.-]*\w)")),
    ("host", "host=", lazy(r"\bhost=([A-Za-z][\w-]*(?:\.[\w-]+)+)")),
    ("host", ":/", lazy(r"(?<![\w.:/-])([A-Za-z][\w.-]{1,62}):/\S{0,200} on /\S{0,200} type nfs")),
    (
        "host",
        " lost| died| down|unreach",
        lazy(r"\b(?:worker|node|host) (?=[\w-]*\d)([A-Za-z][\w-]{3,40}) (?:lost|died|is down|is unreachable)\b"),
    ),
    ("host", "COMPUTERNAME=|USERD", lazy(r"\b(?:COMPUTERNAME|USERDOMAIN|USERDNSDOMAIN)=([\w.-]+)")),
    ("host", "search ", lazy(r"^search ([a-z][\w-]*(?:\.[\w-]+)+(?: [a-z][\w-]*(?:\.[\w-]+)+)*)$", re.MULTILINE)),
    ("host", "CN=", lazy(r"\bCN=(?=[\w*-]*[.\d-])([A-Za-z*][\w*-]*(?:\.[\w-]+)*\w)(?=[,/'\"\s]|$)")),
    ("user", "=", lazy(rf"\b(?:uid|cn)=({_NAME}),\s?(?i:ou|dc|cn|o)=", re.IGNORECASE)),
    ("user", "role |user |account |ogin ", lazy(r"\b(?:role|user|account|login) (?:['\"]|\u2018)([\w.-]+)['\"\u2019]")),
    (
        "user",
        "huggingface.co/",
        lazy(rf"\bhuggingface\.co/(?:api/)?(?:models/|datasets/|spaces/)?(?!(?:{_KNOWN_OWNERS})/)([\w.-]+)/[\w.-]+"),
    ),
    ("organization", "O=", lazy(r"(?<=[ =,/]O=)([^,/=\n]{2,60})(?=[,/])")),
    ("user", "sudo:", lazy(rf"\bsudo: +({_NAME}) : ")),
    ("user", "nvalid user: ", lazy(r"\binvalid user: ?[\u2018'\"]([\w.:-]+)")),
    (
        "job",
        "JOB |JOB_ID=|ob <|job ",
        lazy(r"(?:\bJOB |\bJOB_ID=|\bJob <|\bjob (?=\d+\.[a-z]))(\d{4,12}(?:\.[a-z][\w.-]+)?)"),
    ),
    ("job", "Name:   ", lazy(r"^Name: {3,20}([a-z0-9]+-[a-z0-9.-]+)$", re.MULTILINE)),
    ("id", "docker.pkg.dev/", lazy(r"\bdocker\.pkg\.dev/([\w-]+)/")),
    ("serial", "ata-", lazy(r"\bata-\w{2,40}_([A-Z0-9]{8,20})\b")),
    ("id", "ssh-", lazy(r"\bssh-(?:ed25519|rsa|dss) (AAAA[A-Za-z0-9+/]{20,}+={0,2})")),
    (
        "host",
        "gke-|aks-|DESKTOP-|LAPTOP-|WIN-",
        lazy(r"\b((?:gke|aks)-[\w-]+|(?:DESKTOP|LAPTOP|WIN)-[A-Z0-9]{7,11})\b"),
    ),
    (
        "host",
        "connect|address|bind",
        lazy(r"(?:connect|address|bind).{0,60}\(['\"]?([A-Za-z][\w.-]*)['\"]?, \d{2,5}\)"),
    ),
    ("host", "[", lazy(r"\[((?:dgx|node|gpu|cn|compute|worker|host|hpc|server)[\w.]*-[\w-]*\d)\]")),
    (
        "user",
        "user ",
        lazy(rf"\buser ({_NAME}) (?:has )?(?:exceeded|logged|does not exist|is not in|was (?:killed|banned))"),
    ),
    ("user", "owned by|quota of|by user", lazy(rf"\b(?:owned by|quota of|by user) (?!the\b|a\b)({_NAME})")),
    ("user", "sudoers", lazy(rf"({_NAME}) is not in the sudoers")),
    ("serial", "erial ", lazy(r"\bserial (?=[A-Z]*\d[A-Z0-9]*[A-Z\d])([A-Z0-9]{8,20})\b", re.IGNORECASE)),
    # Ops of TensorFlow are nodes, too, but have no hyphens.
    (
        "host",
        ":|=",
        lazy(r"(?i:\b(?:node ?name|node|on host)\s?[:=] *)(?=[\w.-]*\d)(?=\w*-)([A-Za-z][\w.-]{2,})"),
    ),
    ("serial", ":|=", lazy(rf"\b(?:serial(?: ?number)?|board ?id|asset ?tag)\s*[:=]\s*{_VALUE}", re.IGNORECASE)),
    ("id", "ontainer", lazy(r"\bcontainer(?: id)?[:= ]+([0-9a-f]{12,64})\b", re.IGNORECASE)),
    ("image", "mage|MAGE", lazy(rf"\bimage\s?[:=]\s*{_VALUE}|--image[= ]+([\w./:@-]+)", re.IGNORECASE)),
)
"""Where a text says what follows: an option, a variable, the form of a line. What it has then, so that most texts are
not searched."""
LINES = tuple(
    lazy(text)
    for text in (
        r"(?:\[[\d.: -]+\] )?(?P<host>[\w.-]+):\d+:\d+ \[\d+\] ",  # NCCL: host:pid:tid [device]
        r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d (?P<host>[\w.-]+) [\w.-]+(?:\[\d+\])?:",  # syslog
        r"\d{4}-\d\d-\d\dT[\d:.,]+(?:Z|[+-][\d:]{4,5}) (?P<host>[\w.-]+) [\w.-]+(?:\[\d+\])?:",
        r"\[(?P<host>[A-Za-z][\w.-]*):\d{2,8}\] ",  # mpirun
        r"(?P<host>[A-Za-z][\w.-]*) kernel: ",
        rf"[-dlcbps][-rwxsStT]{{9}}[.+@]? +\d+ +(?P<user>{_NAME}) +(?P<group>{_NAME}) +\d",  # ls -l
        rf"(?P<user>{_NAME})\+? +\d{{1,8}} +\d{{1,4}}\.\d +\d{{1,3}}\.\d +\d+ +\d+ ",  # ps aux
        rf"(?P<user>{_NAME})\+? +\d{{1,8}} +\d{{1,8}} +\d{{1,3}} +\S{{2,7}} +\S+ +\d\d:",  # ps -ef
        rf" *\d{{1,8}} (?P<user>{_NAME})\+? +(?:\d{{1,3}}|rt) +-?\d{{1,2}} +[\d.]+[kmgt]? ",  # top
        rf"(?P<user>{_NAME})\+ +\d{{1,8}} +\d",  # ps of any columns, the name cut
        r"(?P<host>[A-Za-z][\w.-]*) +slots=\d",  # a hostfile of MPI
        r"(?:\d{1,3}\.){3}\d{1,3}[ \t]+(?=[\w.-]*[\d-])(?P<host>[A-Za-z][\w.-]*)(?:\s|$)",  # /etc/hosts
        rf"(?P<user>{_NAME}):[x*!]?:\d+:\d+:",  # /etc/passwd
        rf"(?P<user>{_NAME}) +(?:pts/|tty|seat)\d",  # who
        rf" *[\d_]{{1,14}} +\S+ +(?P<job>{_NAME}) +(?P<user>{_NAME}) +[A-Z]{{1,2}} +[\d-]*:?\d+:\d\d +\d+"
        r"(?: +(?P<host>[A-Za-z][\w.,[\]-]+)$)?",  # squeue
    )
)
"""Forms of whole lines, and columns that people paste: each names by its groups what it has."""

AT = lazy(
    rf"(?<![\w.+/@-])({_NAME})@(?!v?\d|@|GLIBC|CXX)([A-Za-z][\w-]{{1,63}})(?![\w-]|[\w.-]*/|\.(?:service|socket|target))"
)
"""``alice@node07``, in prompts and commands of ssh."""
