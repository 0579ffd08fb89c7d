#!/bin/sh
# Runs the fast tests as on other processors: oneDNN and PyTorch are told to use fewer instructions.
# Usage: tests/machines.sh [pytest arguments]
cd "$(dirname "$0")/.." || exit
python="${PYTHON:-.venv/bin/python}"
# Everything that computes with a model, except what trains one or opens a browser.
[ $# -gt 0 ] || set -- tests/test_alignment.py tests/test_attention.py tests/test_bundled.py tests/test_decode.py \
    tests/test_evaluate.py tests/test_explain.py tests/test_explain_output.py tests/test_huggingface.py tests/test_model.py \
    tests/test_processors.py tests/test_short_attention.py tests/test_taps.py tests/test_translate.py tests/test_vectors.py \
    tests/test_whole_models.py
failed=""
for setting in DEFAULT=1 ONEDNN_MAX_CPU_ISA=AVX2 ONEDNN_MAX_CPU_ISA=AVX512_CORE ONEDNN_MAX_CPU_ISA=SSE41 \
    ATEN_CPU_CAPABILITY=default OMP_NUM_THREADS=1; do
    echo "== $setting"
    env "$setting" "$python" -m pytest "$@" || failed="$failed $setting"
done
[ -z "$failed" ] || { echo "failed under:$failed"; exit 1; }
