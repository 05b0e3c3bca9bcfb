"""What an auditor does when something is wrong: cases before a jury, promises called in, a silent coordinator replaced.

forgery ─▶ challenge       a submission that should not have been accepted
attesters ─▶ dispute       an earnings root that the log doesn't bear out
inclusion                  a promise of inclusion that isn't kept
takeover                   epochs, earnings and claims without a coordinator
                all of them by `sender`: one account, one chain, one transaction at a time
"""
