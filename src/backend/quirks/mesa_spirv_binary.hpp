#pragma once

#include <string_view>

namespace kiln::backend::quirks {

/// Mesa's glGetProgramBinary crashes on programs that were made from SPIR-V: it writes the names of their buffer
/// blocks (write_buffer_block() in serialize.cpp), which are null, because SPIR-V modules need no names. Seen
/// with 22.3.6; no public report and no fixed release are known, so this applies to all releases.
///
/// Work-around: Kiln does not ask for these binaries. Such programs are kept in memory only.
struct MesaSpirvBinary {
  /// By GL_VERSION.
  static bool affects(std::string_view version) { return version.find("Mesa") != std::string_view::npos; }
};

}  // namespace kiln::backend::quirks
