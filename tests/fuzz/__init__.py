"""Fuzzing of every parser: `python -m tests.fuzz --minutes 10`.

target.py     what a target is: a function of bytes, and the errors that it may raise
targets.py    the table of all targets, by name
corpus/NAME/  inputs that found something, or that reach deep; replayed by `make test`
watch.py      runs one input: what crashed, what was slow
random_run.py mutation without coverage, deterministic; guided_run.py the same with coverage (atheris)
"""
