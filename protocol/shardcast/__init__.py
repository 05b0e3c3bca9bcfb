"""SHARDCAST: a policy version, cut into shards that anybody can check, from one origin to everyone.

checkpoint folder ──origin.publish──▶ DIR/versions/N/{shards/I, manifest.json}   data first, index last
DIR behind any web server (server.py is the built-in one)
WeightsRelease + URLs ──client.fetch─────────▶ DEST/vN/                         each shard checked as it comes
"""
