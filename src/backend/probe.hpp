#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <kiln/device.hpp>

#include "backend/helper_process.hpp"

namespace kiln::backend {

/// The line, including its newline, that a kiln-helper of this version writes before it loads a driver.
std::string_view helper_greeting() noexcept;

/// The path of the kiln-helper that this process starts; nullopt if there is none. The search order is
/// `KILN_HELPER`, the folder of the file that holds Kiln's code (the program or a shared library), the libexec
/// folder of the prefix of that file, the libexec folder that Kiln was configured with. A set-uid program, or one
/// with other additional rights, uses only the last.
///
/// Takes no lock of the dynamic loader, so it does not block while another thread is inside dlopen().
std::optional<std::string> find_helper();

/// GPU drivers take a second or two to start on a busy machine.
inline constexpr std::chrono::milliseconds probe_patience = std::chrono::seconds(20);

/// Lists the devices of an API in a separate process, so that a driver that crashes or hangs while it loads does no
/// harm to this process. Probes run concurrently.
class Probe {
 public:
  /// Starts `helper`, the result of find_helper(). The timeout `patience` begins now.
  Probe(std::string_view api, const std::string& helper, std::chrono::milliseconds patience = probe_patience);

  /// Waits for the devices of the API. Call it once. If the driver crashes or hangs, the list has one device with
  /// that problem. The error says why the helper cannot be used: it did not start, or it is of another version of
  /// Kiln.
  Result<std::vector<DeviceInfo>> answer();

 private:
  std::string_view api_;
  std::chrono::milliseconds patience_;
  HelperProcess::Deadline deadline_;
  Result<HelperProcess> process_;
};

}  // namespace kiln::backend
