#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Measures Aliquot on this machine's GPU, in at most nine minutes: sh gpu.sh. It needs Linux on x86-64, an NVIDIA driver, and for
# some parts a python3 with PyTorch; nothing is installed and no setting of a device is changed. With --simulate it runs on simulated
# devices, with --short in less than a minute. What it finds goes into $OUT (default: ./out): gpu.json, summary.txt, log.txt.
set -u
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd) || exit 2
case $(uname -s)-$(uname -m) in
Linux-x86_64) ;;
*)
	echo "gpu.sh: it was built for Linux on x86-64, and this is $(uname -s) on $(uname -m)" >&2
	exit 2
	;;
esac
OUT=${OUT:-./out}
mkdir -p -- "$OUT" || exit 2
# What is carried as a copy may have lost its mode on the way.
chmod u+x "$here/aliquot" "$here/measure" "$here"/examples/* "$here"/programs/* 2>/dev/null
# It keeps to its time by itself; should it not, it is told to end, which it does with what it has found.
bound=
if command -v timeout >/dev/null; then bound='timeout -k 10 529'; fi
# shellcheck disable=SC2086 # these are several words
exec $bound "$here/measure" -folder "$here" -out "$OUT" "$@"
