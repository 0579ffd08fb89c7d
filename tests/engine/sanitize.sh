#!/usr/bin/env bash
# The engine under AddressSanitizer and UndefinedBehaviorSanitizer for each processor, and its threads under ThreadSanitizer.
# Arguments: rounds for each processor (default 2000), seed.
set -euo pipefail
cd "$(dirname "$0")"
rounds=${1:-2000} seed=${2:-1}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
flags="-std=gnu11 -O1 -g -ffp-contract=off -fno-math-errno -fno-omit-frame-pointer -Wall -Wextra -Wno-psabi -pthread"
check() { # name, flags of the processor, sanitizers, arguments
  ${CC:-cc} $flags $2 -fsanitize="$3" -fno-sanitize-recover=all fuzz.c -o "$folder/fuzz" -lm
  echo "$1, $3: $("$folder/fuzz" $4)"
}
if [ "$(uname -m)" = x86_64 ]; then
  check plain "-march=x86-64" address,undefined "$rounds $seed"
  grep -q avx2 /proc/cpuinfo && check avx2 "-march=x86-64-v3" address,undefined "$rounds $seed"
  grep -q avx_vnni /proc/cpuinfo && check avxvnni "-march=x86-64-v3 -mavxvnni" address,undefined "$rounds $seed"
  grep -q avx512_vnni /proc/cpuinfo && check avx512vnni "-march=x86-64-v4 -mavx512vnni" address,undefined "$rounds $seed"
else
  check plain "" address,undefined "$rounds $seed"
fi
check threads "" thread "$((rounds / 20)) $seed 4"
