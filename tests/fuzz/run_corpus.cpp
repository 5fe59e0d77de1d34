// Hands a fuzzer the files of the folders that are named, where libFuzzer is not there to do it.
#include <cstdio>
#include <filesystem>

#include "fakes/files.hpp"
#include "fuzz/input.hpp"

int main(int argc, char** argv) {
  int inputs = 0;
  for (int i = 1; i < argc; ++i)
    for (const std::string& name : kiln::fakes::names_in(argv[i])) {
      // The last one that is named is the one that ended the process.
      std::printf("%s\n", name.c_str());
      std::fflush(stdout);
      const std::string input = kiln::fakes::read_file(std::filesystem::path(argv[i]) / name);
      LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(input.data()), input.size());
      ++inputs;
    }
  return inputs > 0 ? 0 : 1;
}
