#!/usr/bin/env bash
# Table 2 of the continual skeleton graphs' paper on UCLA-CIL: all 120 task orders and 100 class orders of every method, method by
# method, then again until there are five repeats. Interrupt it at any time; the same command resumes it.
#     benchmarks/skeleton_table_2.sh FOLDER_OF_N_UCLA OUT [SETTING...]
# One process takes about 6 CPU hours a repeat, or with the SETTING evaluation.draws=per_repeat 5. SETTING is passed on as --set.
# METHODS, EXPERIMENTS and REPEATS, of the environment, narrow it; BENCHWRIGHT names the command.
set -euo pipefail
data=$1 out=$2
shift 2
export OMP_NUM_THREADS=1
tool=${BENCHWRIGHT:-benchwright}
settings=()
for each in "$@"; do settings+=(--set "$each"); done
[ -e "$out/dataset/dataset.json" ] ||
  "$tool" run skeleton --set source.root="$data/all_sqe" --set source.lists="$data/split_train_val.json" --out "$out"
for repeats in ${REPEATS:-1 5}; do
  for method in ${METHODS:-er lwf finetune ewc mas gem twp}; do
    for experiment in ${EXPERIMENTS:-task_order class_order}; do
      date -u "+%F %T $method $experiment, $repeats repeats"
      "$tool" train "$out" --method "$method" --protocol "$experiment" --set evaluation.repeats="$repeats" "${settings[@]}"
    done
  done
done
