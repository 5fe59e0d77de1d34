// A library, or a driver, that does when it is loaded what KILN_STAND_IN says.

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include <fcntl.h>
#include <unistd.h>

namespace {

/// Meets a reader of the FIFO "entered" in the folder KILN_STAND_IN_FOLDER, then waits for a writer of "release".
void block() {
  const std::string folder = std::getenv("KILN_STAND_IN_FOLDER");
  // Stays open: its reader sees when the process ends.
  open((folder + "/entered").c_str(), O_WRONLY | O_CLOEXEC);
  close(open((folder + "/release").c_str(), O_RDONLY | O_CLOEXEC));
}

[[gnu::constructor]] void act() {
  const char* wanted = std::getenv("KILN_STAND_IN");
  const std::string_view what = wanted != nullptr ? wanted : "";
  if (what == "block") block();
  if (what == "end") _exit(0);
  if (what == "print") {
    std::puts("a driver prints");
    std::fflush(stdout);
  }
}

}  // namespace
