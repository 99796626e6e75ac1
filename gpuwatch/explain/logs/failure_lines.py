"""Whether a line of a log reports a failure, a warning or neither: by its logger's level, its form and its words.

Levels are those of glog, absl, Python's loggers, logfmt and JSON. The words are those that people use, in whatever
language; a word does not count if it is a count of zero, a measure, a name (of a file, an option, a class, a column),
or a text that the program works on.
"""

from __future__ import annotations

import re

from gpuwatch.explain.logs import interrupts
from gpuwatch.explain.logs.log_line_text import undecorated_start, without_prefixes
from gpuwatch.explain.logs.reported_ends import topic_of_report

_NAMES_AND_TEXTS = re.compile(
    r"^.{0,200}?\b\d{1,3}%[\s:]{0,2}[^\w\s].{0,120}?\d/\d[^\]]{0,60}\]?"  # a progress bar
    r"|[\"'`][^\"'`]{0,200}\s[^\"'`]{0,200}[\"'`]"  # a text
    r"|(?<!: )[\"'`]\w+[\"'`](?=[,:\])])|\b(?!out-of-|time-out)\w+(?:-\w+)+(?:'\w+)?(?:-\w+)*"  # of a list; compounds
    r"|[a-z_][\w.]*\([^)\s]*\)"  # a call
    r"|\S*[/\\]\S*|\b(?!rc=|code=|status=|exit)[\w.-]+=\S+"  # a file, an option's value
    r"|(?<![\w-])--?[\w-]+|\b[\w.]*_\w*(?:(?:\.[a-z_]+)+(?![\w.]))?(?=\W|$)|\b\w+\.[a-z]\w{0,4}\b(?:[:(]\d+)?"
    r"|\b[a-z]+(?:\.[a-z_]+){2,}(?![\w.])|\b(?:\w+[+-](?:\s|$)){2,}"  # a dotted name; flags, as lspci prints them
)
"""Names and texts, in which a word means nothing."""
_WORDS = re.compile(
    r"traceback \(most recent|\b(?:fail\w*|err(?:or)?s?|exceptions?|traceback|abort\w*|killed(?! \d)|cannot"
    r"|can(?:no|')t|can not|could(?: not|n't)|unable"
    r"|refused|denied|rejected|forbidden|unauthori[sz]ed|unreachable|crash\w*|panic\w*|fatal|died|dead(?:lock)?"
    r"|stuck|hangs?|hung|timed? ?-?out|broken|corrupt\w*|malformed|invalid|illegal|unhandled|uncaught"
    r"|unexpected(?:ly)?(?! behavio| result| key)"
    r"|segfault|segmentation(?! fault handler)|core dumped|out.of.(?:memory(?! err)|space)|no such|no space"
    r"|gave up|giving up|(?:quota|limit) exceeded|evict\w*|low on resource|death signal"
    r"|(?:was|were|been|got|has|is) (?:terminated|lost)"
    r"|(?:did|does|do|was|were|is|are)(?: not|n't) (?:work|finish|exist|start|load|run|respond|found|read|writ|allow"
    r"|permit|possib|support|valid|reach|complet|converge)\w*|not (?:found|ok|allowed|permitted|responding|enough)"
    r"|(?:exited|exits?(?= with| code| status|code))(?: with)?(?: code| status|code)?[ :=]{1,3}-?[1-9]\d{0,9}"
    r"|rc ?= ?-?[1-9]\d{0,2}|SystemExit: -?[1-9]\d{0,2}"
    r"|return(?:ed|s)?(?: code| value| status)? -?[1-9]\d{0,2}[.;,)]?$|signal (?!(?:1|2|15)\b)\d{1,2}"
    r"|abnormal\w*|assertion|reset by peer|disk (?:is )?full|(?:is|are) missing|unavailable"
    # What Python and PyTorch say of a value, where a program prints it alone.
    r"|(?:is|are|index) out of (?:bounds|range)|(?:size|shape|dimension|dtype)s? mismatch\w*|division by zero"
    r"|is not (?:defined|callable|iterable|subscriptable|implemented)|missing \d+ required"
    r"|got an unexpected keyword|takes \d+ positional|unhashable type|too many indices"
    r"|must be [\w ,]{1,40}, not '?\w+|can only concatenate|expected .{1,60}\bbut (?:got|found|received)"
    r"|unsupported operand|insufficient|unsuccessful\w*|incomplete|unresolved|violation|halted|(?:not|n't) pass\w*"
    r"|(?:terminated|ended|finished|stopped) (?:with|by) (?:an? )?(?:code|signal|status) -?[1-9]\d{0,3}"
    r"|(?:terminated|killed|ended) by signal SIG[A-Z]{2,6}"
    r"|^(?:alarm clock|hangup|user defined signal [12]|profiling timer expired)"
    r"|ooms?|revoked|being reclaimed|(?:^|job (?:was |has been )?|instance (?:was )?)preempted|cancell?ed"
    r"|(?:session|run-?time|instance|pod|node) (?:was |has been )?terminated"
    r"|(?:run-?time|session|kernel) (?:was |has been )?disconnected|disappeared|diverged|reset by \d[\d.]{6,14}"
    r"|lost (?:the )?(?:connection|contact|worker)|heartbeat (?:was )?(?:missed|lost)|something went wrong|oops"
    r"|retr(?:y|ies) (?:limit )?(?:exceeded|reached|exhausted)|(?:checksum|hash|version|key)s? mismatch\w*"
    r"|wrong number of|killing (?:the )?(?:job|process|subprocess)(?:es)?|out of time|wall ?-?time limit"
    # The same in other languages.
    r"|fehler\w*|fehlgeschlagen|abgebrochen|erreur\w*|\u00e9chec\w*|\u00e9chou\w*|errore|fall[o\u00f3]"
    r"|falha\w*|erro(?= \w|:)|fallito"
    r"|l\u1ed7i|kh\xf4ng th\u1ec3|b\u0142\u0105d\w*|nie uda\u0142o|hata\w*|ba\u015far\u0131s\u0131z|virhe|fejl"
    r"|feil|fout|mislukt|verweigert|gre\u0161ka|chyba|hiba|eroare|gagal|kesalahan"
    r"|\u03c3\u03c6\u03ac\u03bb\u03bc\u03b1|\u043f\u043e\u043c\u0438\u043b\u043a\w*)\b"
    r"|\w(?-i:Error|Exception)(?:\b(?!: -?(?:\d|nan\b))|(?=Traceback))|\u2717|\u2718|\u274c|\u26d4|\U0001f4a5"
    r"|\u5931\u8d25|\u5931\u6557|\u9519\u8bef|\u932f\u8aa4|\u5f02\u5e38|\u51fa\u9519|\u30a8\u30e9\u30fc|\uc2e4\ud328|\uc624\ub958"
    r"|\u043e\u0448\u0438\u0431\u043a|\u043d\u0435 \u0443\u0434\u0430\u043b\u043e\u0441\u044c"
    r"|\u062e\u0637\u0623|\u05e9\u05d2\u05d9\u05d0\u05d4|\u0e02\u0e49\u0e2d\u0e1c\u0e34\u0e14\u0e1e\u0e25\u0e32\u0e14|\u0924\u094d\u0930\u0941\u091f\u093f",
    re.IGNORECASE,
)
_MEASURES = re.compile(
    r"\b(?:fail\w*|err(?:or)?s?|exceptions?|abort\w*|crash\w*|killed|died|dead|invalid|corrupt\w*|time-?outs?|ooms?"
    r"|cancell?ed|preempted)\b"
    r"(?: ?\([^)]{0,20}\)|(?: \w{1,12}){1,3})?[\s:=|]{1,20}"
    r"-?(?:0\b(?!x)|\d[\d.e%+-]*\.\d|\d+(?:\.\d+)?%|none|null|false|\[\])"
    r"|\b(?:no|0|zero|without|any|if|non)[ _-](?:\w{1,12} )?(?:fail\w*|err(?:or)?s?|exceptions?|crash\w*|aborted|killed"
    r"|ooms?|cancell?ed|preempted|unexpected|invalid|broken|corrupt\w*|dead|rejected|refused|not found)\b"
    r"|\b(?:squared|absolute|relative|percentage|word|character|mean|max|test|train\w*|val\w*|eval\w*|std|standard"
    r"|reconstruction|prediction|estimation|approximation|rounding|pose|angular|position|rotation|translation|top-\d"
    r"|td|l[12]|rel|abs|rms)[ -](?:\w{1,12} )?err(?:or)?s?\b"
    r"|\berr(?:or)?[ -](?:rate|bars?|margin|threshold|bound|hook|handl\w+|correct\w+|log\w*|reporting)\b"
    r"|\b(?:fail|crash|error|exception|time-?out)\w*[ -](?:tests?|rate|safe|fast|over|handl\w+|recovery|mode|hook)"
    r"|\bhyphenation exceptions\b|\brejected ?[=:] ?\d+"  # of TeX, of a solver's steps
    r"|\b(?:may|might|c(?:an|ould) cause|prevents?|(?:to|can) avoid|in case)\b.{0,80}"
    r"|\b\d[\d.]* ?% [\w ]{1,60} (?:was|were) lost\b"
    r"|\btime-?out \d{1,9}:|\b(?:time-?out|hang|quota|signal)s?\b ?(?:of|after|is|set(?: to)?|[:=]) ?\d"
    r"|\bwith (?:an? )?\d[\d.]{0,9}[ -]?(?:ms|s|sec|second|min|minute)s? time-?out\b",
    re.IGNORECASE,
)
"""Measures and counts of zero."""
_NUMBER = re.compile(r"(?<![\w.])-?\d[\d.,e+-]*(?![\w.])")
_PYTHON_FAILURE = re.compile(r"^-{2,}> ?\d+|^(?:module |type object )?'[\w.]{1,80}' (?:object )?has no attribute '")
"""IPython's mark of the line that raised; Python's words for a name that an object lacks."""
_TABLE_ROW = re.compile(r"^\W{0,3}[\w %()#/:.-]{1,60}\| *-?[\d.,]{1,20} ?%? *\|?$")
_LETTERS = re.compile(r"[^\W\d_]{2,}")


def speaks_of_failure(line: str) -> bool:
    """Whether an undecorated line has a word of failure that is no name, measure or count of zero in it."""
    if _PYTHON_FAILURE.match(line) is not None:
        return True
    if _WORDS.search(line) is None:
        return False
    text = _MEASURES.sub(" ", _NAMES_AND_TEXTS.sub(" ", line))
    return _WORDS.search(text) is not None and not _is_in_table(text)


def _is_in_table(line: str) -> bool:
    """Whether a line is a table's header, of words alone between wide gaps, or a row of it, of a word and numbers."""
    cells = [cell for cell in re.split(r"\s{2,}|\t|\|", line.strip(" |#")) if cell]
    if len(cells) > 3 and all(len(cell) < 20 for cell in cells):
        return True
    if _TABLE_ROW.match(line) is not None:
        return True
    words = line.split()
    return len(words) > 2 and len(_LETTERS.findall(line)) == 1 and len(_NUMBER.findall(line)) >= len(words) - 1


_MAX_EARLY_CHARS = 200
"""In so many characters a line without a level says that it reports a failure: longer ones are texts to work on."""
_LEVEL = re.compile(
    r"^(?:\S{0,40} ){0,4}?\[?(?P<glog>[IWEF])(?:\d{4} [\d:.]{1,30}|(?= (?:tensorflow|external|[\w/]{1,80}\.cc)))"
    r"|\d: (?P<absl>[IWEF]) \S{1,200}\.cc:\d|\blevel=(?P<logfmt>\w{1,8})|\"level\" ?: ?\"(?P<json>\w{1,8})\""
    r"|^(?:> ?)?(?:\[[\d/:. -]{8,30}\] ?)?\[(?P<tensorrt>E)\] "
    r"|(?:^|[\s\[|:(<-])(?P<word>DEBUG|INFO|NOTICE|NOTE(?=:)|WARN|WARNING|ERROR|CRITICAL|FATAL|PANIC|ERRO|FTL)\b"
    r"|(?P<python>\w{0,40}Warning): "
)
_STREAM_LOGGER = re.compile(r"\b[A-Z]{4,8} *\| *std(?:err|out) *\|")
"""A logger's level and name for all that a program writes to a stream: it says nothing of a line."""
ADD_ON_ERROR = re.compile(
    r"^(?:\[[\d :.,T-]{8,30}\] )?\[(?!(?i:rank|engine|worker|server|main|core))[A-Za-z][\w .-]{1,40} ERROR\] "
)
"""A line of a part of a server, which calls itself by its name: "[Name ERROR] …"."""
_BAD_LEVELS = frozenset({"e", "f", "error", "critical", "fatal", "panic", "erro", "ftl", "err"})
FAILURE_AT_ANY_LEVEL = re.compile(
    r"OP_REQUIRES failed|\bInsufficient (?:nvidia|amd)\.com/|\bdevice error\b|\bgiving up\b|\bGGML_ASSERT"
    r"|\bnvcc fatal ?:|\bBypassing SIGTERM|Received SIGTERM: \d"  # of a program that trains
    r"|CrashLoopBackOff|(?:Image|Err)\w*Pull(?:BackOff)?\b|(?:Create|Run)Container\w*Error\b"
    r"|^Connection to \S+ closed by remote host|^client_loop: send disconnect|^packet_write_wait: "
    r"|\(EE\) no screens found|Server terminated with error|\bSIGABRT\b|\bSIGSEGV\b"
    r"|\b(?:exiting|aborting|quitting) (?:now|due|because|after)\b"
)
"""Reported by a line of whatever level."""
NCCL_WARNING = re.compile(r"NCCL WARN (?!NVML library|.*(?:No plugin found|kernel version|iommu))")
"""NCCL's warnings are its errors, but for some about what it does without; counts of retries in them are no success."""
_FAILURES_FILE = (
    r"(?:(?:error|failure|exception)[ _-]?(?:logs?|reports?|dumps?|files?|details|state|traces?)"
    r"|(?:crash|core|stack ?trace|traceback)(?:[ _-]?(?:logs?|reports?|dumps?|files?|details|state))?)\b"
)
_FAILURE_REPORT_WRITTEN = re.compile(
    rf"\b{_FAILURES_FILE}.{{0,80}}?\b(?:saved|saving|written|writing|exported|dumped)\b"
    rf"|\b(?:sav|writ|dump|export)(?:ed|ing|ten) (?:\w{{1,12}} ){{0,2}}{_FAILURES_FILE}",
    re.IGNORECASE,
)
"""A file that a program writes because it failed is no result."""
_HARMLESS = re.compile(
    r"^\W{0,3}(?-i:(?:HELP|TYPE) [a-z]\w*_\w+ )|AERCap:"
    r"|Unable to register cu|already registered|TensorRT|Could not find cuda drivers|rebuild TensorFlow|NUMA"
    r"|unimplemented for this stream|\b(?:Gdk|Gtk|GLib)(?:-\w{1,20})?-(?:CRITICAL|WARNING)\b|pip's dependency resolver"
    r"|\badd an exception for\b|\berror[ _]rate|\berror (?:messages?|output) (?:goes?|is written|are written) to\b"
    r"|ERR! +\||NVML library|Failed to grab modeset ownership|An exception has occurred, use %tb"
    r"|(?:\)|:\d{1,6}): (?:warning|note|remark)\b|going to /tmp instead|failed to find ggml_backend_"
    r"|Fontconfig (?:error|warning)|is over \d{1,2}% full"
    r"|\berror trace to: |\b[Aa]s a (?:consequence|result), you may\b|\battention mask (?:is not set|and the pad token)"
    r"|\b(?:retry(?:ing)?|reconnecting|resuming|starting another|fall(?:ing )?back|skipp?(?:ed|ing)"
    r"|ignor(?:ed|ing)|filtered|discarded|dropped)\b",
    re.IGNORECASE,
)
"""Words of failure in lines that report none: descriptions of metrics, lspci's, TensorFlow's noise at its import, what
is tried again or left out."""


_PROSE = re.compile(
    r"\b(?:I|I'm|I've|i (?:think|am|get|got|have|tried|want|need|guess|used?|run|ran|don'?t|cannot|can't)|me|my"
    r"|[Aa]nyone|[Aa]ny (?:ideas?|thoughts?|help|suggestions?)|[Pp]lease help|[Tt]hanks)\b"
    r"(?!(?: \S+){0,2}: )|^(?:[Ww]e|[Yy]ou|[Dd]id you|[Hh]ave you) (?:\w+ ){4}"
    r"|^(?:[A-Z]\w* ){1,2}[^:=\[\]/]{20,}\?(?: |$)"
)
"""Words of people in a thread, around the log that they post."""
_EXCEPTION_LINE = re.compile(r"(?!SystemExit: [1-9])(?:\w+\.)*\w*(?:Error|Exception|Exit|Interrupt)(?::|$)")
_WARNING = re.compile(
    r"(?:^|[\s:])\w{0,40}Warning: |\bWARN(?:ING)?\b|\[W\]|^\s*(?:warnings\.)?warn\("
    r"|(?:^|\W|\[\d{1,3}m)W\d{4} |: W [\w/]+\.cc:"
)
_SKIPPED = re.compile(r"\W{0,3}skip(?:ped|ping)?\b", re.IGNORECASE)


def is_warning(line: str = "", *before: str) -> bool:
    """Whether a line, as it is, is part of a warning: of Python's module, of a logger, of NCCL or TensorRT.

    ``before``: the lines before it, the last first: of a warning whose text begins below its heading."""
    return _WARNING.search(line) is not None or any(text.rstrip().endswith("Warning:") for text in before)


def reports_skipping(line: str) -> bool:
    """Whether a line says that the program leaves something out and goes on: "[skip] Failed to load …"."""
    return _SKIPPED.match(line.lstrip()) is not None


def _level(line: str) -> str:
    found = _LEVEL.search(_STREAM_LOGGER.sub("", line))
    return str(found[str(found.lastgroup)]).lower() if found is not None and found.lastgroup else ""


def _level_of(whole: str) -> str:
    """The level of a line's own logger before that of what collected it."""
    return _level(without_prefixes(whole)) or _level(whole)


def is_error_line(line: str) -> bool:
    """Whether a line, as it is, is of the level of errors, or begins so."""
    return has_error_level(line) or undecorated_start(line).startswith(("Error ", "Failed ", "Could not "))


def is_note(whole: str) -> bool:
    """Whether an undecorated line is of a level below that of warnings."""
    return _level_of(whole) in ("i", "info", "debug", "notice")


def logs_failure(line: str) -> bool:
    """Whether a logger calls a line, as it is, an error, and its words speak of a failure that is not known as harmless
    or left out: what collects the lines of others gives them all a level of its own."""
    whole = undecorated_start(line)
    if _level(whole) not in ("error", "critical") or _is_known_harmless(whole) or reports_skipping(whole):
        return False
    return speaks_of_failure(without_prefixes(whole)[:_MAX_EARLY_CHARS])


def has_error_level(line: str) -> bool:
    """Whether a line is of the level of errors, none that ends a program."""
    return _level(undecorated_start(line)) in ("e", "err", "erro", "error")


def reports_failure(whole: str, *, last: bool = False, words: bool = True) -> bool:
    """Whether an undecorated line reports a failure. ``last``: whether it is the last one of its log.

    ``words``: whether words of failure count; not while a person ends the program.
    """
    line = without_prefixes(whole)
    if line.startswith("frame #"):
        return False  # of a C++ backtrace, whose message stands above
    if NCCL_WARNING.search(whole) is not None or _FAILURE_REPORT_WRITTEN.search(whole) is not None:
        return True
    if _is_known_harmless(whole):
        return False
    if FAILURE_AT_ANY_LEVEL.search(whole) is not None:
        return True
    level = _level_of(whole)
    if level in _BAD_LEVELS:
        return True
    if level and not last:
        return False  # a note or a warning, after which the log goes on
    if level.endswith("warning") or level in ("w", "warn"):
        return False
    of_traceback = "raceback (most" in whole or (_EXCEPTION_LINE.match(line) is not None and not last)
    if of_traceback or topic_of_report(line) is not None or _PROSE.search(whole) is not None:
        return False
    return words and speaks_of_failure(_STREAM_LOGGER.sub("", whole)[:_MAX_EARLY_CHARS])


def _is_known_harmless(whole: str) -> bool:
    """Whether a line is known to report no failure, whatever its words."""
    known = _HARMLESS.search(whole) is not None or topic_of_report(without_prefixes(whole)) == ""
    known = known or "KeyboardInterrupt" in whole
    return known or interrupts.reports_keyboard_interrupt(whole) or interrupts.received_sigterm((whole,))


def is_doubtful(whole: str, *, worked: bool) -> bool:
    """Whether a line speaks of a failure; one that its own level calls a warning does not if the program worked,
    nor does a warning of Python's module."""
    line = whole[:_MAX_EARLY_CHARS]
    if _is_known_harmless(whole) or reports_skipping(whole) or not speaks_of_failure(_STREAM_LOGGER.sub("", line)):
        return False
    level = _level_of(whole)
    of_python = level.endswith("warning") and level != "warning"  # after which the code itself goes on
    return not level or level in _BAD_LEVELS or (not worked and len(level) > 1 and not of_python)
