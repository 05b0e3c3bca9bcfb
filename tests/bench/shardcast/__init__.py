"""What both sides of tests/bench/test_bench_shardcast.py run."""
