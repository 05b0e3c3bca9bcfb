"""A pool's log as an auditor reads it: nothing is believed that doesn't hash to a leaf, and no head but a trusted one.

log_reader    the whole log in order            served_log   one subject or one type of it
checked_log   what a report stands on           anchors      is a leaf under a head of the chain?
event_data    what leaves say, checked          copies       are copied contract events the chain's?
"""
