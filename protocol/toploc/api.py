"""The names of the published library, TOPLOC 0.1.6, in one place: to switch, change the import.

    from toploc import build_proofs_bytes, verify_proofs_bytes                 # before
    from protocol.toploc.api import build_proofs_bytes, verify_proofs_bytes    # after

The same arguments give the same bytes (with `ties="torch-cpu"`). What differs, and the strict verifier that
verdicts are based on: docs/toploc.md.
"""

from protocol.toploc.build import build_proofs, build_proofs_base64, build_proofs_bytes
from protocol.toploc.digest import sha256sum
from protocol.toploc.proof import ProofPoly
from protocol.toploc.verify import VerificationResult, verify_proofs, verify_proofs_base64, verify_proofs_bytes

__all__ = [
    "ProofPoly",
    "VerificationResult",
    "build_proofs",
    "build_proofs_base64",
    "build_proofs_bytes",
    "sha256sum",
    "verify_proofs",
    "verify_proofs_base64",
    "verify_proofs_bytes",
]
