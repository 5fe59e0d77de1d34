#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <kiln/device.hpp>

#include "backend/helper_process.hpp"

namespace kiln::backend {

/// The line, with its newline, that a kiln-helper of this version writes before it loads a driver.
std::string_view helper_greeting() noexcept;

/// The kiln-helper that this process starts; nothing if there is none. In this order: `KILN_HELPER`, beside the
/// file that holds Kiln's code (the program, or a shared library), the libexec folder of the prefix that this file
/// is in, the libexec folder that Kiln was configured with. A program that has more rights than its caller takes
/// the last one only.
///
/// Needs no lock of the dynamic loader's, so it answers while another thread is inside dlopen().
std::optional<std::string> find_helper();

/// GPU drivers take a second or two to start on a busy machine.
inline constexpr std::chrono::milliseconds probe_patience = std::chrono::seconds(20);

/// A question to a driver for its devices, asked by a process of its own, so that a driver that crashes or hangs
/// when it is loaded does no harm here. Probes run side by side.
class Probe {
 public:
  /// Starts the process; see find_helper(). Its time begins now.
  Probe(std::string_view api, const std::string& helper, std::chrono::milliseconds patience = probe_patience);

  /// Waits for the devices of the API; to be asked once. If the driver crashes or hangs, that is one device with
  /// that problem. The error says why the helper cannot be used: it did not start, or is of another version of
  /// Kiln.
  Result<std::vector<DeviceInfo>> answer();

 private:
  std::string_view api_;
  std::chrono::milliseconds patience_;
  HelperProcess::Deadline deadline_;
  Result<HelperProcess> process_;
};

}  // namespace kiln::backend
