#!/bin/sh
# Builds and runs the consumers with nothing but a compiler and pkg-config.
set -eu
compiler=$1 pkgconfig=$2 project=$3 output=$4 flags=$5
export PKG_CONFIG_PATH="$pkgconfig"
# The programs are in no prefix, so this tells them where the helper and the compiler for Vulkan are.
KILN_HELPER=$(pkg-config --variable=helper kiln)
KILN_SHADERC=$(pkg-config --variable=shaderc kiln)
export KILN_HELPER KILN_SHADERC
# build_and_run SOURCE PACKAGE
build_and_run() {
  # shellcheck disable=SC2046,SC2086
  "$compiler" -std=c++20 $flags "$project/$1" -o "$output" $(pkg-config --cflags --libs --static "$2")
  "$output"
}
build_and_run main.cpp kiln
build_and_run kernels.cpp kiln-kernels
