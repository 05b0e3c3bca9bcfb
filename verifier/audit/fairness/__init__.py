"""Was work given out fairly, and what came of it? `proofpool audit fairness`.

reading ─┬─▶ leases ─▶ questions    what was leased, and how hard it was
         ├─▶ deliveries             what came back, and who has the same
         ├─▶ refused                who was turned away
         └─▶ promises               what was promised, and kept or not
                               ─▶ fairness ─▶ table
"""
