"""The chain: JSON-RPC (`rpc`), ABI (`abi`), blocks, `client`, sending (`lane`), our `contracts`, one `pool`."""
