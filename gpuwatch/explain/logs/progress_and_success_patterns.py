"""What programs print while they work, when their work begins, and when it ended well.

The texts are those of training loops and progress bars, of Keras, Lightning, the Hugging Face Trainer, vLLM, SGLang,
text-generation-inference, llama.cpp, Ollama and ComfyUI, of tests, builds and benchmarks.
"""

from __future__ import annotations

import re

_RATE = r"(?:it|s|ms|us|tok(?:en)?s?|samples?|examples?|images?|img|steps?|iters?|seqs?|rows|frames)"
_STEP = r"(?:epochs?|(?:global_?)?steps?|iter(?:ation)?s?|batch(?:es)?|trial|round|episode)"
SERVER_ANSWER = (
    r"\"(?:GET|POST|PUT|HEAD|DELETE|OPTIONS) \S{1,300} HTTP/\d(?:\.\d)?\" [1-4]\d\d\b"  # Uvicorn, aiohttp, Werkzeug
    r"|^\[GIN\] .{1,80}\| +[1-4]\d\d \|"  # Ollama
    r"|throughput: [\d.]{1,12} tokens/s|throughput \(token/s\): \d|\b(?:Prefill|Decode) batch[.,] #"
    r"|\d tokens per second\)|\bslot +(?:launch_slot_|update_slots|print_timing|release): "
    r"|all slots are idle|request: (?:GET|POST) \S{1,200} \S{1,60} [1-4]\d\d\b"
    r"|\[I [\d: .-]{8,26}(?:Notebook|Server|Lab|Hub)\w{0,4}\] (?:Saving file at |Kernel started|Creating new "
    r"|[23]0\d GET |Starting buffering for |Restoring connection for |Uploading file )"  # Jupyter
    r"|_time=\".{1,400}\}: \S{1,60}: \S{1,100}: Success$"  # text-generation-inference
)
"""A server that answers: also to a request that it cannot fulfil."""
WORK_STARTS = r"\bStart(?:ing|ed) (?:training|evaluation|inference)\b"
SERVER_STARTED = (
    r"Application startup complete|Uvicorn running on|fired up and ready|\blistening (?:on|at):? \S"
    r"|You can now view your Streamlit app|To see the GUI go to: |llama runner started|model loaded$"
    r"|Running on (?:local URL|public URL|https?:)"
    r"|Listening and serving HTTP|\bJupyter (?:Notebook|Server|Lab)\b.{0,30} is running|Serving notebooks from "
    rf"|{WORK_STARTS}"
    r"|(?:router|server)\S{0,40}: \S{1,80}: Connected$"
)
EXIT_0 = (
    r"\b(?:exit(?:ed|s)?|completed|finished|terminated|ended|returned)\b(?: with)?(?: the)?(?: exit| return)?"
    r" ?(?:code|status|value)?[ :=]{1,3}0(?![\d.%/])"
)
"""What a launcher or a program says of another one that ended well."""
SERVER_STOPPED = "Stopped server"
"""ComfyUI's last line when a person stops it."""
ALL_WORK_DONE = (
    r"\b(?:training|evaluation|validation|inference|prediction|run|job) (?:is |has |was )?(?:now )?"
    r"(?:finished|completed?d?|done|successful)\b"
)
_ENDED_WELL_PATTERN = (
    rf"{ALL_WORK_DONE}|{EXIT_0}"
    r"|epochs completed in |\.fit` stopped: `max_|Optimizer stripped from |\b(?:finished|completed) successfully"
    r"|\bexited without errors"
    r"|Application shutdown complete|Finished server process|'train_runtime': |^Speed: [\d.]{1,9}ms "
    r"|\[shutdown\] |signal=SIGTERM|SIGTERM received|caught SIGTERM|shutting down gracefully|received SIGTERM"
    r"|Handling signal: term|Worker exiting \(pid|Shutting down: Master"
    rf"|\ball tests (?:completed|passed)\b|^{SERVER_STOPPED}$"
    r"|\b(?:conclu[i\u00ed]d[oa]|finalizad[oa]|completad[oa]|terminad[oa])s? (?:com sucesso|con \u00e9xito)\b"
    r"|\bavec succ\u00e8s\b|\berfolgreich (?:abgeschlossen|beendet)\b"
    r"|\u0443\u0441\u043f\u0435\u0448\u043d\u043e \u0437\u0430\u0432\u0435\u0440\u0448"
    r"|(?:\u8bad\u7ec3|\u8a13\u7df4|\u63a8\u7406|\u5b66\u7fd2|\u5b78\u7fd2)(?:\u5df2|\u304c)?(?:\u5b8c\u6210|\u5b8c\u4e86|\u7ed3\u675f)"
    r"|\bNormal termination \(return value 0\)"
    r"|^Setting up \S{1,80} \(|^Processing triggers for |^update-initramfs: Generating |^DKMS: \w{1,10} completed\.?$"
    r"|^Complete!$|^Executing transaction: (?:\.\.\.working\.\.\. )?done|^Successfully (?:installed|built|tagged) \S"
    r"|^INFO: +(?:Creating SIF file|Build complete: )"
    r"|^\[INFO\]: (?:Installed: |Finished with code: 0|\S{0,20}installation complete)|\[100%\] Built target "
    r"|^-- Build files have been written to|\bLeaving directory\b|service terminated successfully$"
    r"|^Nothing to do\.?$|Registered device plugin for|persistence mode enabled"
    r"|\bResult = PASS$|\bAvg bus bandwidth +:|^=+ .{0,60}\b\d{1,7} passed\b(?!.* failed)"
    r"|\b(?:model|checkpoint|weight|result|output|figure|plot|file|image|log|report|prediction)s? "
    r"(?:(?:is|are|was|were|has been|have been) )?(?:successfully )?(?:saved|written|exported)\b"
    r"|\bwrote (?:\w{1,12} ){0,3}\S{1,200}\.\w{2,5}\b|\bsav(?:ed|ing) (?:\w{1,12} ){0,2}(?:model|checkpoint"
    r"|weights?|results?|state)\b|\bsaved (?:to|in|at|as)\b|^Saved: "
    r"|^saved\b.{1,60} (?:to|in|as) ['\"`]?[\w./\\-]{1,200}\.\w{2,5}\b|TensorBoard \S{1,20} at http|&&&& PASSED"
    r"|^done (?:generating|training|processing|evaluating|testing|saving|extracting|converting|computing|writing)\b"
    r"|Started (?:HTTP|GRPC)\w*Service|\bsuccessfully loaded\b|^#\d{1,4} DONE \d|naming to \S{1,200}.{0,20} done$"
    r"|\bLinking (?:CUDA|CXX|C) \w|^(?:Compil|Link)ing {1,9}\S+ {1,60}> \S"
    r"|^Build succeeded|exits successfully|\b[Ee]xit(?:ed with)? (?:code|status):? 0\.?$"
    r"|Files already downloaded and verified|\b(?:evaluation|test|final) results?\b.{0,5}[:=]"
    r"|Average (?:Precision|Recall) +\(A[PR]\)|test result: ok|\[ +PASSED +\] \d|100% tests passed|^OK(?: \(|$)"
    r"|^State: COMPLETED \(exit code 0\)|\bReturning an analysis object by default"
    r"|^Ran \d{1,7} tests? in|^Result for \S{1,100}:$"
    r"|^Status: (?:Downloaded newer image|Image is up to date) for |^\w{12}: Pull complete$"
    r"|^Self (?:CPU|CUDA|XPU) time total: |\|± *\||(?-i:\bSUCCESS\b)(?! ?[:=])|^Finished \w{1,40} on \d"
    r"|^Number of trials: \d{1,7}/\d{1,7} \((?:\d{1,7} (?:RUNNING|PENDING|TERMINATED),? ?)+\)$"
)
PROGRESS = re.compile(
    rf"(?P<keras>\d{{1,9}}/\d{{1,9}} (?:\[[=>.]+\]|[\u2501\u2500 ]{{3,}})"
    r" ?-? ?(?:ETA: |\d{1,9}(?:s|us|ms|:\d\d)\b))"
    rf"|{SERVER_ANSWER}|{SERVER_STARTED}|{_ENDED_WELL_PATTERN}|\b{_RATE}/s(?:ec)?: \d"
    rf"|[\d.] {{0,2}}{_RATE}(?:/| per )(?:s|sec|second|step|it|iter|batch|epoch)\b"
    r"|\d {0,2}ns(?:/| per )day\b|\(\d[\d.,]{0,12} ?\w{2,15}/s(?:ec)?\)"
    rf"|\b{_STEP}\b[ \t\"':=#\[(/-]{{0,4}}\d|\({_STEP}\) +\[\d"
    r"|(?<!\.py:\d{3}\] )(?<!\.py:\d{4}\] )\[ *\d{1,9}/\d{1,9}\]"  # torch.compile counts its frames so
    r"|\b(?:\w{1,20}loss|(?:train_|val_|eval_|avg_|total_)?(?:loss|acc|accuracy|perplexity|reward)(?:_\w{1,20})?)\b"
    r"(?: \(\w{1,12}\))?(?:['\"]?[ \t]?[:=]| (?=\d+\.\d))"
    r" ?-?\d"
    r"|(?<!:)\b(?:success rate|precision|recall|f1|auc|ndcg|mrr|bleu|rouge|iou|psnr|ssim|rmse|mae|reciprocal rank|ttft"
    r"|tpot|throughput)\b(?: ?[@(][\w/ ]{1,10}\)?)?(?: ?[:=] ?| {2,})\d"
    r"|\d{1,3}%\|.{0,200}\d{1,9}/\d{1,9} \[|^ {0,8}\d{1,5}/\d{1,5} +\d[\d.]{0,6}G +\d"
    r"|\bcode=[1-4]\d\d http/|^\[\d{1,7}\][ \t]+\S{1,40}-\w{1,30}:\d|\bavg loss\b|\[\d\d:[\d:.]{3,12} --> \d"
    r"|\bPERF: +\d|^frame= *\d{1,9} fps=|^WallClock: |^Status\.+: (?:Exhausted|Running|Cracked)|\d [kMGT]?H/s\b"
    r"|^Prompt executed in \d|Rendering \d{1,9}/\d"
    r"|Final timings for |llama_\w{1,40}: +total time = |\| +(?:pp|tg)\d{1,6} \|"
    r"|\bmAP\S{0,16}[:=] ?\d"
    r"|^\W{0,3}(?:mean_reward|ep_rew_mean|total_timesteps|fps|loss) +\| +-?\d|^\d{1,9}(?:, ?-?\d[\d.e+-]{0,20}){2,}$"
    r"|^\d{1,9} (?:train|val) \d{1,6}\.\d{2,20}$"
    r"|^\d{1,2}, .{0,200}\d (?:%|MiB|W)$|Train-\w{1,40}=|Validation-\w{1,40}=|\bTime cost="
    r"|(?<!shape )\btorch\.Size\(\[\d",
    re.IGNORECASE,
)
SCRIPT_END = re.compile(
    r"(?:^|[\s:\]-])(?:all )?(?:done|finished|completed|success)[.! ]*$|^(?:real|user|sys)\s+\d{1,6}m[\d.]{1,9}s$"
    r"|\b(?:elapsed|total|training|wall|inference|running) ?(?:wall )?time\b.{0,20}[:=] ?\d"
    r"|^(?:cost|took|takes)\b.{0,20}\d ?(?:ms|s|sec(?:ond)?s?)$"
    r"|(?:^|\s)(?:fertig|beendet|abgeschlossen|termin(?:\u00e9|ado|ata|ato)\w{0,2}|fini|finalizado|conclu\u00eddo"
    r"|\u0437\u0430\u0432\u0435\u0440\u0448\w{1,6}|\u0433\u043e\u0442\u043e\u0432\u043e)[.! ]*$"
    r"|(?:\u5b8c\u6210|\u5b8c\u4e86|\u5b8c\u6bd5|\u7ed3\u675f|\u7d42\u4e86|\uc644\ub8cc)[.!\u3002\uff01 ]*$"
    r"|^(?:\([\w.-]+\) ?)?\[?[\w.-]{1,40}@[\w.-]{1,80}[: ][^$#]{0,100}[$#]$"  # a shell's prompt
    r"|^End of (?:program|job|script)|\bJupyter Server \S{1,20} is running|\bjob done\b|^wandb: Synced \d"
    r"|(?:^|\| )READY +\|$|^Submitted batch job \d|^wandb: \W{0,6}View run |^Requirement already satisfied: ",
    re.IGNORECASE,
)
"""What a script says at its end, however its program ended: work if no other line says more."""
ENDED_WELL = re.compile(_ENDED_WELL_PATTERN, re.IGNORECASE)
