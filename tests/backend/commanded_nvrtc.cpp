// A stand-in for NVRTC 13.3 that does what each line of a source says:
//
//   sleep MS    waits
//   say TEXT    writes to standard error
//   crash       aborts
//   exit        ends the process with status 3
//   kill        kills the process, as the kernel does when memory runs out
//   hang        never returns
//   memory      takes memory until there is none
//   large       makes an image of 8 MiB
//   error       does not compile
//   folder      makes an image with the working folder
//
// An image is otherwise the number of the process that made it.

#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <sys/resource.h>
#include <unistd.h>

namespace {

struct Program {
  std::string source;
  std::string image;
};

Program* program(void* native) { return static_cast<Program*>(native); }

void take_all_memory() {
  const rlimit limit = {std::size_t{1} << 30U, std::size_t{1} << 30U};
  setrlimit(RLIMIT_AS, &limit);
  std::vector<std::vector<char>> blocks;
  for (;;) blocks.emplace_back(std::size_t{64} << 20U);
}

int compile(Program& program) {
  program.image = std::to_string(getpid());
  std::istringstream lines(program.source);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string word;
    words >> word;
    if (word == "sleep") {
      int milliseconds = 0;
      words >> milliseconds;
      std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    } else if (word == "say") {
      std::fprintf(stderr, "%s\n", line.c_str() + 4);
    } else if (word == "crash") {
      std::abort();
    } else if (word == "exit") {
      _exit(3);
    } else if (word == "kill") {
      std::raise(SIGKILL);
    } else if (word == "hang") {
      for (;;) pause();
    } else if (word == "memory") {
      take_all_memory();
    } else if (word == "large") {
      program.image.assign(std::size_t{8} << 20U, 'x');
    } else if (word == "folder") {
      program.image = std::filesystem::current_path().string();
    } else if (word == "error") {
      return 6;
    }
  }
  return 0;
}

}  // namespace

extern "C" {

int nvrtcVersion(int* major, int* minor) { return *major = 13, *minor = 3, 0; }
int nvrtcCreateProgram(void** native, const char* source, const char*, int, const char* const*,
                       const char* const*) {
  *native = new Program{source, {}};
  return 0;
}
int nvrtcAddNameExpression(void*, const char*) { return 0; }
int nvrtcGetLoweredName(void*, const char* name, const char** symbol) { return *symbol = name, 0; }
int nvrtcDestroyProgram(void** native) {
  delete program(*native);
  *native = nullptr;
  return 0;
}
int nvrtcCompileProgram(void* native, int, const char* const*) { return compile(*program(native)); }
int nvrtcGetProgramLogSize(void*, std::size_t* size) { return *size = 10, 0; }
int nvrtcGetProgramLog(void*, char* log) { return std::memcpy(log, "some text", 10), 0; }
int nvrtcGetCUBINSize(void* native, std::size_t* size) { return *size = program(native)->image.size(), 0; }
int nvrtcGetCUBIN(void* native, char* bytes) {
  const std::string& image = program(native)->image;
  std::memcpy(bytes, image.data(), image.size());
  return 0;
}
const char* nvrtcGetErrorString(int) { return "NVRTC_ERROR_OF_THE_STAND_IN"; }
int nvrtcGetPTXSize(void*, std::size_t*) { return 1; }
int nvrtcGetPTX(void*, char*) { return 1; }
int nvrtcGetNumSupportedArchs(int* count) { return *count = 1, 0; }
int nvrtcGetSupportedArchs(int* architectures) { return *architectures = 90, 0; }

}  // extern "C"
