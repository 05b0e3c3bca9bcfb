"""What a provider does with its cold key: stake, nodes, earnings. Never needed on a machine that runs a worker."""
