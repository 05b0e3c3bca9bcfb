"""What the log adds up to, for one hash, for money, for validators, or row by row.

show       what happened to a hash              export      the history as rows in a file
money      earned, owed and paid                judging ─▶ accountability   each validator's record
"""
