"""The auditor's commands: submissions, money, the whole row of one submission."""
