#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <kiln/log.hpp>
#include <kiln/result.hpp>

namespace kiln {

/// What to bake. A value.
struct BakeOptions {
  /// The records with the requests (CacheOptions::record).
  std::vector<std::filesystem::path> records = {};
  /// The devices that need not be present: `cuda:sm_90` (machine code), `cuda:compute_90` (PTX), `cuda:all`,
  /// `hip:gfx90a`, `hip:gfx90a:xnack-`, `vulkan` (SPIR-V for every device); or `opengl:here`, `opencl:here`,
  /// `vulkan:here`, …: the first device of this API on this machine. A target gets the requests of its API.
  std::vector<std::string> targets = {};
  /// The bundle that is written. Until it has all programs that can be compiled, `OUTPUT.baking`, a folder beside
  /// it, keeps what is compiled already, so that the same call goes on later.
  std::filesystem::path output = {};
  /// Adds PTX of the newest CUDA architecture of `targets`, for GPUs that are newer.
  bool adds_ptx = true;
  /// Puts the requests into the bundle, so that a device without a program in it can compile them at its first run.
  bool adds_requests = true;
  /// Compresses the programs. Without, they load up to 10 microseconds faster, and take two to three times the
  /// room.
  bool compresses = true;
  /// How many programs are compiled at once; 0: one for each processor.
  unsigned jobs = 0;
  /// Becomes readable when no further programs are to be begun; -1: none. Belongs to the caller.
  int interrupted = -1;
  Log log = {};
};

/// What bake() reports after each program. Valid only during the call.
struct BakeProgress {
  /// How many programs have been tried so far, this one included, and how many there are.
  std::size_t done = 0;
  std::size_t total = 0;
  const std::string& name;
  const std::string& target;
  /// The error if this program failed, else null.
  const Error* error = nullptr;
  /// An estimate of the time until all are done; nothing if there is no basis for one yet.
  std::optional<std::chrono::nanoseconds> remaining = {};
};

/// The outcome of bake().
struct BakeReport {
  struct Failed {
    std::string name = {};
    std::string target = {};
    Error error;
  };
  struct Target {
    std::string name = {};
    std::size_t programs = 0;
    /// Of its programs in the bundle; if no bundle was written, in the folder.
    std::uint64_t bytes = 0;
  };

  /// Programs in the bundle: all, those compiled now, and those compiled by a call that did not end.
  std::size_t programs = 0;
  std::size_t compiled = 0;
  std::size_t resumed = 0;
  /// Requests that a target cannot use, such as one with the option -arch=sm_90a for sm_80.
  std::size_t skipped = 0;
  std::vector<Target> targets = {};
  std::vector<Failed> failures = {};
  /// How many of the failures another call may not have, such as a lack of memory. If there are any, the folder of
  /// the output remains, and the same call compiles only these programs.
  std::size_t retriable = 0;
  /// Bytes of the bundle.
  std::uint64_t bytes = 0;
  bool was_interrupted = false;
};

/// Compiles the requests of records for devices that need not be present, on all processors, the slowest first, and
/// writes a bundle (docs/bundles.md). A program that does not compile is left out and reported. Equal inputs and
/// compilers give equal bytes. Fails with invalid_request for a target that is not valid, or that no request is
/// for, with unsupported if its compiler is missing or does not know it, with timed_out if another process bakes
/// the same bundle, and with io. If it fails or is interrupted, no bundle is written. Does not change the working
/// folder of the process.
///
/// `progress` is called by one thread at a time, never by the caller's. If it throws, no further programs are
/// begun, and this function throws that exception.
Result<BakeReport> bake(const BakeOptions& options,
                        const std::function<void(const BakeProgress& progress)>& progress = {});

}  // namespace kiln
