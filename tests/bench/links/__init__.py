"""SHARDCAST over shaped links: network namespaces, the hosts in them, and what is measured."""
