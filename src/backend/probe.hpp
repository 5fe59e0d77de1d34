#pragma once

#include <string_view>
#include <vector>

#include <sys/types.h>

#include <kiln/device.hpp>

#include "base/file.hpp"

namespace kiln::backend {

/// A question to a driver for its devices, asked in a child process, so that a driver that crashes or hangs when it
/// is loaded takes nobody with it. Children run side by side.
///
/// The child is a fork, and may meet a lock that another thread held: then it hangs, and is killed after a while.
class Probe {
 public:
  using List = std::vector<DeviceInfo> (*)(const Log& log);

  /// Starts the child.
  Probe(std::string_view api, List list);
  Probe(Probe&& other) noexcept;
  Probe& operator=(Probe&&) = delete;
  /// Ends a child that was not waited for.
  ~Probe();

  /// Waits for what the driver says. Where it crashes or hangs, that is one device of the API with that problem.
  std::vector<DeviceInfo> answer();

 private:
  int wait();

  std::string_view api_;
  List list_;
  base::FileHandle reading_;
  /// Negative where there is no child, or none any more.
  pid_t child_ = -1;
};

}  // namespace kiln::backend
