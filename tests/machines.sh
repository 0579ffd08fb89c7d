#!/bin/sh
# Runs the fast tests as on other processors: oneDNN and PyTorch are told to use fewer instructions.
# Usage: tests/machines.sh [pytest arguments]
cd "$(dirname "$0")/.." || exit
python="${PYTHON:-.venv/bin/python}"
# Everything that computes with a model, except what trains one or opens a browser.
[ $# -gt 0 ] || set -- tests/inspect/test_alignment.py tests/model/test_attention.py tests/storage/test_bundled.py tests/decode/test_decode.py \
    tests/decode/test_huggingface.py tests/decode/test_interventions.py tests/model/test_compiled_taps.py \
    tests/evaluate/test_evaluate.py tests/inspect/test_explain.py tests/inspect/test_explain_output.py tests/exchange/test_huggingface.py tests/model/test_model.py \
    tests/decode/test_processors.py tests/model/test_short_attention.py tests/model/test_taps.py tests/translate/test_translate.py tests/course/test_vectors.py \
    tests/model/test_whole_models.py
failed=""
for setting in DEFAULT=1 ONEDNN_MAX_CPU_ISA=AVX2 ONEDNN_MAX_CPU_ISA=AVX512_CORE ONEDNN_MAX_CPU_ISA=SSE41 \
    ATEN_CPU_CAPABILITY=default OMP_NUM_THREADS=1; do
    echo "== $setting"
    env "$setting" "$python" -m pytest "$@" || failed="$failed $setting"
done
[ -z "$failed" ] || { echo "failed under:$failed"; exit 1; }
