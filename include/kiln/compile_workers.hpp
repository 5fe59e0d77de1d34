#pragma once

#include <chrono>
#include <optional>

namespace kiln {

/// Compile workers: processes of kiln-helper in which NVRTC compiles, because it compiles little faster with
/// several threads than with one. They are started when a process wants more than one compilation at once, shared
/// by all its caches, and stopped when they are idle. All processes of a user together have at most one for each
/// processor. A compiler that crashes or hangs in a worker fails its program only.
///
/// Without kiln-helper, in programs that run with more rights than their caller (set-uid), and if the system starts
/// no process, everything is compiled in this process.
struct CompileWorkers {
  /// How many workers this process may have; 0: none. By default one for each processor, shared with the other
  /// processes that compile. `$KILN_COMPILE_WORKERS` replaces the default.
  std::optional<unsigned> most = {};
  /// How long a worker may take for one program. Then it is killed, and the program fails with timed_out. Zero: no
  /// limit. `$KILN_COMPILE_LIMIT`, in seconds, replaces the default. Compilations in this process have no limit.
  std::chrono::milliseconds time_limit = std::chrono::minutes(15);
  /// How long an idle worker is kept.
  std::chrono::milliseconds idle_limit = std::chrono::seconds(2);
};

/// The defaults, with what the environment replaces.
CompileWorkers default_compile_workers();
/// Replaces the settings of this process for all later compilations. May be called from any thread.
void set_compile_workers(const CompileWorkers& workers);

}  // namespace kiln
