#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include <signal.h>

#include "report.hpp"

namespace kiln::cli::demo {

/// Thrown where the user wants the demo to end.
struct Interrupted {
  int signal = 0;
};

/// While it lives, the signals that would end this process wait until a run_process() notices them and throws
/// Interrupted, so that nothing is left behind.
class Interruption {
 public:
  Interruption();
  ~Interruption();
  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;

  int descriptor() const noexcept { return descriptor_; }
  /// The signals that were blocked before, as a new process should find them.
  const sigset_t& mask_before() const noexcept { return mask_before_; }

 private:
  sigset_t mask_before_ = {};
  int descriptor_ = -1;
};

/// A process of the demo that is to be started.
struct ProcessOptions {
  /// What messages call it, as in "the cold process".
  std::string title = {};
  /// Arguments of this executable; "--child=N", the descriptor it reports to, is added.
  std::vector<std::string> arguments = {};
  /// Variables set besides those of this process.
  std::map<std::string, std::string> environment = {};
};

/// Starts this executable once more and waits for its end; `progress` gets the report as it grows. Throws Failure
/// where the process fails or dies, with the program it died on.
ProcessReport run_process(const ProcessOptions& options, const Interruption& interruption,
                          const std::function<void(const ProcessReport&)>& progress);

}  // namespace kiln::cli::demo
