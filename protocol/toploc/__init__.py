"""TOPLOC: 258 bytes that tie 32 rows of last hidden states to the model that made them.

    hidden states [T, H] bf16                      worker                        verifier
      └ activations.py   bit patterns, chunks of 32 rows, zero-padded              same
          └ topk.py      the 128 largest magnitudes of each chunk                  same, of its own states
              └ modulus.py + field.py   the polynomial over GF(65497)              its values at the verifier's indices
                  └ encoding.py   m, c0 … c127 as big-endian uint16                strict parse first
      build.py, stream.py: whole rollouts, or rows as they are decoded   compare.py, strict.py: values -> statistics

`proof.py`, `build.py:build_proofs` and `verify.py` carry the names and bytes of the published
library, TOPLOC 0.1.6 (arXiv:2501.16007); `strict.py` is what verdicts are based on. Bytes, rules and
differences: docs/toploc.md. `encoding`, `field` and `modulus` need numpy only, so that a process
without torch can check proofs for form; torch is loaded where a tensor or `ties="torch-cpu"` is given.
"""
