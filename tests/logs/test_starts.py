"""A log of several starts is about the last; ranks and workers that print the same lines are no starts."""

from __future__ import annotations

from gpuwatch.explain.diagnosis.explain import explain

_HEAD = ["2026-05-04 10:11:12,131 INFO launch: checking the node", "2026-05-04 10:11:12,140 INFO launch: 8 GPUs", ""]
_HEAD += ["loading the model from /data/m"]
_AGAIN = [line.replace("10:11:12", "10:44:02") for line in _HEAD]
_TRACE = ["Traceback (most recent call last):", '  File "/a/train.py", line 7, in <module>', "    main()"]
_WRONG = ["usage: train.py [-h] [--lr LR]", "train.py: error: unrecognized arguments: --lrr 3"]
_FULL = [*_TRACE, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity"
         " of 15.00 GiB of which 9.00 MiB is free."]  # fmt: skip
_WORK = [f"step {number}: loss 0.1" for number in range(5)]


def test_the_last_start_counts() -> None:
    found = explain([*_HEAD, *_WRONG, *_AGAIN, *_TRACE, "OSError: [Errno 98] Address already in use"])
    assert found.findings[0].title.startswith("The port is taken")
    assert found.findings[-1].title == "The log is of 2 starts; this is about the last, from line 7 on"
    assert "rejected its arguments" in found.findings[-1].evidence[0]
    assert found.lines == 14
    worked = explain([*_HEAD, *_FULL, *_AGAIN, *_WORK])
    assert (worked.primary, worked.ooms) == ("healthy", ())
    # A start that ended well, too, once the first lines are known to begin one.
    thrice = [*_HEAD, *_FULL, *_AGAIN, *_WORK, *_AGAIN, *_TRACE, "KeyError: 'x'"]
    assert explain(thrice).primary == "program.error"
    assert "of 3 starts" in explain(thrice).findings[-1].title


def test_a_last_start_that_shows_nothing_leaves_the_one_before() -> None:
    found = explain([*_HEAD, *_FULL, *_AGAIN])
    assert found.ooms
    assert "which shows nothing" in found.findings[-1].title


def test_what_is_no_start() -> None:
    ranks = [*_HEAD, *_AGAIN, *_FULL, *_AGAIN, *_WORK]
    late = [*_HEAD, *_FULL, *["closing"] * 40, *_AGAIN, *_WORK]
    part = [*_HEAD, *_FULL, *_AGAIN[:2], *_WORK]
    same = [*_WORK, *_FULL, *_WORK]
    first = [*_TRACE, "ValueError: bad", *_TRACE, "KeyError: 'x'"]
    ended = [f"{line}\n" for line in ranks]
    for lines in (ranks, late, part, same, first, ended):
        assert not [one for one in explain(lines).findings if "starts; this is" in one.title]
