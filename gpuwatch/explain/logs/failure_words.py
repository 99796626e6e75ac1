"""Words that speak of a failure, in whatever language or form a program says it.

The words are those people use. A word does not count if it is a count of zero, a measure, a name (of a file, an option,
a class, a column), or a text that the program works on.
"""

from __future__ import annotations

import re

_NAMED = re.compile(
    r"^.{0,200}?\b\d{1,3}%[\s:]{0,2}[^\w\s].{0,120}?\d/\d[^\]]{0,60}\]?"  # a progress bar
    r"|[\"'`][^\"'`]{0,200}\s[^\"'`]{0,200}[\"'`]"  # a text
    r"|(?<!: )[\"'`]\w+[\"'`](?=[,:\])])|\b(?!out-of-|time-out)\w+(?:-\w+)+(?:'\w+)?(?:-\w+)*"  # of a list; compounds
    r"|[a-z_][\w.]*\([^)\s]*\)"  # a call
    r"|\S*[/\\]\S*|\b(?!rc=|code=|status=|exit)[\w.-]+=\S+"  # a file, an option's value
    r"|(?<![\w-])--?[\w-]+|\b[\w.]*_\w*(?=\W|$)|\b\w+\.[a-z]\w{0,4}\b(?:[:(]\d+)?"
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
_MEASURED = re.compile(
    r"\b(?:fail\w*|err(?:or)?s?|exceptions?|abort\w*|crash\w*|killed|died|dead|invalid|corrupt\w*|time-?outs?|ooms?"
    r"|cancell?ed|preempted)\b"
    r"(?: ?\([^)]{0,20}\)|(?: \w{1,12}){1,3})?[\s:=|]{1,20}"
    r"-?(?:0\b(?!x)|\d[\d.e%+-]*\.\d|\d+(?:\.\d+)?%|none|null|false|\[\])"
    r"|\b(?:no|0|zero|without|any|if|non)[ _-](?:\w{1,12} )?(?:fail\w*|err(?:or)?s?|exceptions?|crash\w*|aborted|killed"
    r"|ooms?|cancell?ed|preempted|unexpected|invalid|broken|corrupt\w*|dead|rejected|refused|not found)\b"
    r"|\b(?:squared|absolute|relative|percentage|word|character|mean|max|test|train\w*|val\w*|eval\w*|std|standard"
    r"|reconstruction|prediction|estimation|approximation|rounding|pose|angular|position|rotation|translation|top-\d"
    r"|td|l[12]|rel|abs|rms)[ -](?:\w{1,12} )?err(?:or)?s?\b"
    r"|\berr(?:or)?[ -](?:rate|bars?|margin|threshold|bound|hook|handl\w+|correct\w+|log\w*)\b"
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
_RAISED = re.compile(r"^-{2,}> ?\d+|^(?:module |type object )?'[\w.]{1,80}' (?:object )?has no attribute '")
"""IPython's mark of the line that raised; Python's words for a name that an object lacks."""
_OF_A_ROW = re.compile(r"^\W{0,3}[\w %()#/:.-]{1,60}\| *-?[\d.,]{1,20} ?%? *\|?$")
_LETTERS = re.compile(r"[^\W\d_]{2,}")


def speaks_of_failure(line: str) -> bool:
    """Whether an undecorated line has a word of failure that is no name, measure or count of zero in it."""
    if _RAISED.match(line) is not None:
        return True
    if _WORDS.search(line) is None:
        return False
    text = _MEASURED.sub(" ", _NAMED.sub(" ", line))
    return _WORDS.search(text) is not None and not _is_of_table(text)


def _is_of_table(line: str) -> bool:
    """Whether a line is a table's header, of words alone between wide gaps, or a row of it, of a word and numbers."""
    cells = [cell for cell in re.split(r"\s{2,}|\t|\|", line.strip(" |#")) if cell]
    if len(cells) > 3 and all(len(cell) < 20 for cell in cells):
        return True
    if _OF_A_ROW.match(line) is not None:
        return True
    words = line.split()
    return len(words) > 2 and len(_LETTERS.findall(line)) == 1 and len(_NUMBER.findall(line)) >= len(words) - 1
