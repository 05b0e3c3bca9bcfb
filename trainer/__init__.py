"""The trainer: accepted batch -> optimizer step -> weights to everyone.

    coordinator ──BatchOffer + file──▶ batches ──samples─▶ learner ──Checkpoint──▶ broadcast ──▶ origin, chain,
                                       (data in)           (GRPO)    (durable)      (manifest)    coordinator

`loop.py` reads as these stages. Started again after a kill, it goes on from the newest checkpoint.
"""
