#!/bin/sh
# Runs tests as on other machines: processors with fewer instructions, fewer threads, another locale or time zone, no home
# directory, a package that cannot be written, a strict umask, and a path that must be quoted everywhere.
# Usage: [ONLY="umask path"] tests/machines.sh [pytest arguments]
cd "$(dirname "$0")/.." || exit
python="${PYTHON:-$PWD/.venv/bin/python}"
# Everything that computes with a model or handles files, except what trains a model or opens a browser.
[ $# -gt 0 ] || set -- tests/inspect tests/storage tests/model tests/decode tests/evaluate/test_evaluate.py tests/exchange/test_huggingface.py \
    tests/tensors tests/data/test_store.py tests/data/test_corpus.py tests/translate tests/course/test_vectors.py tests/cli tests/test_config.py
export PYTHONPATH="$PWD/src"
failed=""
scratch=$(mktemp -d) && trap 'rm -rf "$scratch"' EXIT

# as NAME COMMAND ...: runs the tests as the arguments of a command.
as() {
    name=$1
    shift
    case " ${ONLY:-$name} " in *" $name "*) ;; *) return ;; esac
    echo "== $name"
    "$@" || failed="$failed $name"
}

# A mount that only one process sees can be read-only, for root, too.
read_only() {
    mount='mount --bind src src && mount -o remount,bind,ro src && exec "$@"'
    if [ "$(id -u)" = 0 ]; then unshare --mount sh -c "$mount" sh "$@"; else unshare --mount --map-root-user sh -c "$mount" sh "$@"; fi
}

# Commands know ASCII only; the tests themselves read and write UTF-8.
ascii() {
    shift
    env LC_ALL=C PYTHONCOERCECLOCALE=0 PYTHONUTF8=0 "$python" -X utf8 "$@"
}

strict() (
    umask 077
    "$@"
)

# A copy of the project where nothing may be taken for a pattern, an option or two words; temporary files are there, too.
awkward() (
    copy="$scratch/two words/[ab]* 100% \$x 'हिन्दी'"
    mkdir -p "$copy/tmp"
    { git ls-files; find src/seq2see/server/explore/page -type f; } | tar -cf - -T - | tar -xf - -C "$copy"
    cd "$copy" || exit
    TMPDIR="$copy/tmp" PYTHONPATH="$copy/src" "$@"
)

set -- "$python" -m pytest -p no:cacheprovider "$@"
as default "$@"
as one-thread env OMP_NUM_THREADS=1 "$@"
as avx2 env ONEDNN_MAX_CPU_ISA=AVX2 ATEN_CPU_CAPABILITY=avx2 "$@"
as avx512-core env ONEDNN_MAX_CPU_ISA=AVX512_CORE "$@"
as sse41 env ONEDNN_MAX_CPU_ISA=SSE41 ATEN_CPU_CAPABILITY=default "$@"
as ascii ascii "$@"
as no-home env -u HOME -u USER -u LOGNAME "$@"
as foreign-home env HOME=/nonexistent "$@"
as time-zone env TZ=Pacific/Chatham "$@"
as umask strict "$@"
as read-only read_only "$@"
as path awkward "$@"
[ -z "$failed" ] || { echo "failed as:$failed"; exit 1; }
