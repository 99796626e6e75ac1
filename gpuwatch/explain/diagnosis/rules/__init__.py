"""The rules, one file per topic; each is a pure function with a decorator.

An error message that is none of gpuwatch's causes (its finding is `program.error`), a signal, an exit: a row of
`explain/diagnosis/rules/program_error_messages.txt`, in the section of the program that prints it. What an exit by a
signal means: `explain/diagnosis/rules/process_ends.py`. A new module: also its name in
`explain/diagnosis/rule_engine.py`.
"""
