#pragma once

namespace kiln::backend::quirks {

/// NVRTC 12.9 and later cache compiled programs, but the cache key omits some options: a program compiled with
/// --use_fast_math after one without it is returned without fast math. Seen with NVRTC 13.0; no public report and
/// no fixed release are known. Kiln has its own cache and turns NVRTC's cache off.
struct NvrtcCache {
  static constexpr const char* option_off = "--no-cache";
  static constexpr bool affects(int major, int minor) noexcept { return major * 100 + minor >= 1209; }
};

}  // namespace kiln::backend::quirks
