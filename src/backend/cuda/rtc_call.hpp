#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace kiln::cuda {

/// Everything that a run-time compiler is given for one compilation. A value, so that it can be sent to another
/// process.
struct RtcCall {
  /// The compiler that is expected, as in "NVRTC 13.0".
  std::string compiler = {};
  /// The working folder of the application, which options may refer to.
  std::string folder = {};
  std::string name = {};
  std::string source = {};
  std::vector<std::string> options = {};
  /// The functions whose symbols are wanted.
  std::vector<std::string> entries = {};
  /// Whether PTX is wanted, not machine code.
  bool text = false;

  std::string to_bytes() const;
  /// Nothing if the bytes are not those of a call.
  static std::optional<RtcCall> from_bytes(const std::string& bytes);
};

/// What the compiler answers.
struct RtcReply {
  /// 0 on success.
  int result = 0;
  std::string log = {};
  std::vector<std::byte> image = {};
  /// One for each entry of the call, after success; nothing where the compiler does not know the function.
  std::vector<std::optional<std::string>> symbols = {};

  std::string to_bytes() const;
  static std::optional<RtcReply> from_bytes(const std::string& bytes);
};

}  // namespace kiln::cuda
