#!/usr/bin/env bash
# One trainer on several machines. Run the same line on each of them, with its own number:
#
#   NODES=4 NODE=0 FIRST=10.0.0.1 deploy/torchrun.sh trainer.toml
#
# NODES   machines                      NODE   this machine's number, from 0: the first one talks to the pool
# FIRST   address of machine 0          PORT   a free port on it (29500)
# RANKS   processes on this machine: its GPUs unless set
#
# data_dir and base_model of trainer.toml lie on a disk that all machines mount at the same path; only machine 0 needs
# the keystore. A rank that dies ends all of them: the outer loop of a service manager starts this line again, and the
# run goes on from its newest checkpoint, on as many ranks as there are then.
set -euo pipefail

config=${1:?give the trainer\'s TOML file}
: "${NODES:=1}" "${NODE:=0}" "${FIRST:=127.0.0.1}" "${PORT:=29500}"
: "${RANKS:=$(nvidia-smi --list-gpus | wc -l)}"

# Ranks share the machine's cores: without a limit each of them would start a thread for every core.
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-8}

exec torchrun \
  --nnodes "$NODES" --node-rank "$NODE" --nproc-per-node "$RANKS" \
  --master-addr "$FIRST" --master-port "$PORT" \
  -m trainer run --config "$config"
