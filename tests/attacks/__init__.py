"""Workers that lie, each in one way, and how many of their rollouts and submissions are caught.

    Arena  one pool to lie to: a world, models to cheat with, honest work
      └─▶ Attack ─▶ Dossier ─▶ trial: every rollout and file judged by the product's own checks
                                 └─▶ matrix: shares caught, with intervals ─▶ docs/verification.md

Everything comes from running models. One file a family of lies; `table.py` lists all of them, caught or not. Run:
`python -m tests.attacks --model tiny`.
"""
