"""Parsers for framework logs: one pass, constant memory.

A message that states a cause, or is evidence for one, whoever prints it: a text of its topic in
`explain/logs/message_topic_texts.py`; if it has numbers, the parser of its framework. That memory ran out:
`explain/logs/oom_messages.py` (the allocator's dump: `explain/logs/allocator_dump.py`). That a launcher or scheduler
ended a job: `explain/logs/reported_ends.py`.
"""
