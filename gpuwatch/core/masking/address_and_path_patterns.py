"""Patterns of what private data its form shows: UUIDs, mail, network and web addresses, paths."""

from __future__ import annotations

from gpuwatch.core.parsing import lazy

TEMPORARY_FOLDER = lazy(r"(?:/tmp|/var/tmp|/dev/shm|/run/user/\d+)/(?=.)")
"""Shared folders: users choose the names in them, even plain ones such as ``venv``."""
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
WINDOWS_SHARE = lazy(r"(?<![\w\\:])(\\{2,4})([A-Za-z][\w.-]{1,62})((?:\\{1,2}[^\s\\/:;,'\"<>|()]+)+)")
WINDOWS_PATH = lazy(r"(?<![\w])([A-Za-z]:)((?:[\\/]{1,2}[^\s\\/:;,'\"<>|()]+)+)")
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
