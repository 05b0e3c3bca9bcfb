"""The testnet's tiny base model (policy version 0), and how it is made from nothing: `make.py`."""
