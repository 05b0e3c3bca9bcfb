"""One file a check, each `check(case) -> CheckResult`; `verifier/pipeline.py` has their order."""
