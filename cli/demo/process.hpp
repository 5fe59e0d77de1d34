#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include <signal.h>

#include "report.hpp"

namespace kiln::cli::demo {

/// Thrown if a signal asks the demo to end.
struct Interrupted {
  int signal = 0;
};

/// While it exists, the signals that would end this process are blocked. run_process() notices them and throws
/// Interrupted, so that temporary folders are removed.
class Interruption {
 public:
  Interruption();
  ~Interruption();
  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;

  int descriptor() const noexcept { return descriptor_; }
  /// The signal mask from before, for new processes.
  const sigset_t& mask_before() const noexcept { return mask_before_; }

 private:
  sigset_t mask_before_ = {};
  int descriptor_ = -1;
};

/// A process of the demo.
struct ProcessOptions {
  /// Its name in messages, as in "the cold process".
  std::string title = {};
  /// Arguments of this executable. run_process() adds "--child=N", the descriptor that the process reports to.
  std::vector<std::string> arguments = {};
  /// Variables that are set in addition to those of this process.
  std::map<std::string, std::string> environment = {};
};

/// Starts this executable again and waits for its end. Calls `progress` with the report after each message. Throws
/// Failure if the process fails or is killed, with the program that it was working on.
ProcessReport run_process(const ProcessOptions& options, const Interruption& interruption,
                          const std::function<void(const ProcessReport&)>& progress);

/// The work of a started process: gets every program from a cache in the directory of `context`, or from a bundle,
/// runs it, checks its result, and writes the messages of report.hpp to `descriptor`. Returns the exit status.
int run_child(const Context& context, int descriptor, bool preloads, const std::vector<std::string>& bundles);

}  // namespace kiln::cli::demo
