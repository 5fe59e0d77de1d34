// Runs a command that the kernel refuses membarrier: without_membarrier COMMAND [ARGUMENT…]

#include <cstdio>

#include <unistd.h>

#include "fakes/forbid_call.hpp"

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fputs("usage: without_membarrier COMMAND [ARGUMENT...]\n", stderr);
    return 2;
  }
  if (!kiln::fakes::forbid_call(SYS_membarrier)) {
    std::perror("without_membarrier: the kernel refused the filter");
    return 1;
  }
  execvp(argv[1], argv + 1);
  std::perror(argv[1]);
  return 1;
}
