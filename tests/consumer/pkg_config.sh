#!/bin/sh
# Builds and runs the consumer with nothing but a compiler and pkg-config.
set -eu
compiler=$1 pkgconfig=$2 source=$3 output=$4 flags=$5
export PKG_CONFIG_PATH="$pkgconfig"
# shellcheck disable=SC2046,SC2086
"$compiler" -std=c++20 $flags "$source" -o "$output" $(pkg-config --cflags --libs --static kiln)
# The program is in no prefix, so it is told where the helper is.
KILN_HELPER=$(pkg-config --variable=helper kiln)
export KILN_HELPER
"$output"
