"""Local chains: anvil (`anvil`), a py-evm node of our own (`embedded`), and the choice between them (`node`)."""
