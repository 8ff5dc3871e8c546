#!/usr/bin/env bash
# All that is proven on a GPU machine, part by part: bench/on_gpu.sh FOLDER PART [PART ...]
#
# A part is NAME or NAME:SECONDS. Needs nothing but a Python with torch, triton, numpy, pandas,
# PyYAML and pytest; logs and raw results go to FOLDER, and one part's failure ends no other.
# CUDA_VISIBLE_DEVICES picks the card, so that several runs of this script share a machine.
set -u
cd "$(dirname "$0")/.."
out=$1
shift
mkdir -p "$out"
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1
python=${PYTHON:-python3}
tests=${GPU_TESTS:-tests/harness/evaluate/test_evaluate_gpu.py tests/harness/devices/test_nvml.py tests/harness/devices/test_telemetry_sources.py
  tests/harness/correctness/test_runtime_audit.py tests/harness/roofline/test_measured_peaks.py tests/exploits tests/honest}

for part in "$@"; do
  name=${part%%:*}
  seconds=${part#*:}
  [ "$seconds" = "$part" ] && seconds=480
  case $name in
    tests) command="$python -m pytest -c tests/gpu.ini --rootdir=. -m gpu -v -rfE --tb=short
      --durations=25 ${GPU_PYTEST_ARGS:-} $tests" ;;
    fidelity) command="$python bench/fidelity.py --gpu --seconds $((seconds - 30))
      --workers 3 --out $out/fidelity-gpu.jsonl" ;;
    faults) command="$python bench/faults.py --out $out/faults.jsonl" ;;
    loops) command="$python bench/loops.py ${LOOPS_ARGS:-} --out $out/loops.jsonl" ;;
    cards) command="$python bench/cards.py --verdicts $((seconds > 240 ? (seconds - 120) / 72 : 1))
      --out $out/cards.jsonl" ;;
    *) echo "no part $name: tests fidelity faults loops cards"; exit 2 ;;
  esac
  echo "== $name, at most $seconds s"
  # shellcheck disable=SC2086
  timeout --kill-after=10 "$seconds" $command > "$out/$name.log" 2>&1
  echo "== $name ended with $?: $(tail -n 1 "$out/$name.log")"
done
