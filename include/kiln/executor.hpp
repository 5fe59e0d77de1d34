#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <kiln/cache.hpp>
#include <kiln/device.hpp>
#include <kiln/future.hpp>
#include <kiln/request.hpp>
#include <kiln/slot.hpp>

namespace kiln {

namespace exec {
class Core;
}

/// Memory that a job works on: the slot's, which is there for the time of the job, or the caller's own.
struct JobMemory {
  /// The size of what the slot lends; not needed where a span below tells it. Its content is unspecified at first.
  std::size_t bytes = 0;
  /// The caller's, kept until the job has ended. Jobs that share one are ordered by Job::after, or only read it.
  std::shared_ptr<Buffer> buffer = {};
  /// Copied in before the first step. The bytes stay and do not change until the future is ready.
  std::span<const std::byte> upload = {};
  /// Or written by this, straight into memory the device copies from; called on a thread of the executor's, and
  /// again where the device ran out of memory meanwhile. Needs `bytes`, or a `buffer`, whose size it has
  /// then.
  std::function<void(std::span<std::byte>)> fill = {};
  /// Copied out after the last step. The bytes are nobody else's until the future is ready.
  std::span<std::byte> download = {};
  /// Or read by this, straight from memory the device copied to; on a thread of the executor's.
  std::function<void(std::span<const std::byte>)> drain = {};
};

/// One run of a program within a job.
struct Step {
  Request request;
  std::array<std::uint32_t, 3> groups = {1, 1, 1};
  /// As in Launch.
  std::array<std::uint32_t, 3> group_size = {0, 0, 0};
  /// The program's buffers: places in Job::memory.
  std::vector<std::size_t> memory = {};
  /// As in Launch.
  std::vector<std::byte> parameters = {};
  /// How much it computes and moves, where known: noted with the program as GFLOP/s and GB/s.
  double flops = 0;
  double bytes = 0;
};

struct JobReport;

/// Work for a device: uploads, then the steps one after the other, then downloads. A value.
struct Job {
  /// For errors and traces.
  std::string name = {};
  std::vector<JobMemory> memory = {};
  std::vector<Step> steps = {};
  /// What must have succeeded before: futures of this executor or of another.
  std::vector<Pending> after = {};
  /// How long it may take from when a lane takes it; 0: as the executor's options say.
  std::chrono::nanoseconds time_limit = {};
  /// Told what it took, where it has succeeded, before the future is ready; on a thread of the executor's, which
  /// has other work.
  std::function<void(const JobReport&)> report = {};
};

/// What a job took, by the device's clock.
struct JobReport {
  std::chrono::nanoseconds upload = {};
  std::chrono::nanoseconds compute = {};
  std::chrono::nanoseconds download = {};
  /// For each step.
  std::vector<std::chrono::nanoseconds> steps = {};
  /// The lane it ran on.
  unsigned lane = 0;
};

struct ExecutorOptions {
  /// Threads, each with three slots. 0: as many as DeviceInfo says.
  unsigned lanes = 0;
  /// Jobs that have not begun; submit() waits while there are so many. At least 1.
  std::size_t queue = 256;
  /// How long a job may take from when a lane takes it; 0: for ever.
  std::chrono::nanoseconds time_limit = {};
  /// How long a lane may take to open a slot; a device that does not answer until then is an error, of create() or
  /// of the jobs. 0: for ever.
  std::chrono::nanoseconds open_limit = std::chrono::minutes(1);
  /// Threads for continuations.
  unsigned continuation_threads = 1;
  /// A file for a trace of what ran when (docs/executor.md). Empty: `$KILN_TRACE`; no trace where that is empty
  /// too.
  std::filesystem::path trace = {};
  Log log = {};
};

struct ExecutorStats {
  std::uint64_t submitted = 0;
  std::uint64_t succeeded = 0;
  std::uint64_t failed = 0;
  std::uint64_t cancelled = 0;
  std::uint64_t timed_out = 0;
  std::uint64_t launches = 0;
  /// Launches of another program than the one before it on its lane.
  std::uint64_t program_switches = 0;
  /// Times that the device had no memory left and the cache and the slots gave some back.
  std::uint64_t memory_retries = 0;
  /// Jobs that wait or run now.
  std::uint64_t unfinished = 0;
};

/// Runs jobs on a device, asynchronously: while one job computes, the next is uploaded and the last downloaded.
///
/// Each lane is a thread that owns three slots, and everything in them; a job is a value that is handed to one
/// lane. Threads share nothing else, so that no number of them changes a result. All functions may be called from
/// any thread. Destroying an executor waits until all its jobs have ended; continuations included.
class Executor {
 public:
  /// `cache` must be one for `device` and outlive the executor. Fails where a lane cannot be opened, or where the
  /// device is of one thread alone (an OpenGL context that was adopted without sharing).
  static Result<std::unique_ptr<Executor>> create(std::shared_ptr<Device> device, Cache& cache,
                                                  ExecutorOptions options = {});
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  /// Queues a job; waits while the queue is full, except on threads of the executor's own. What is wrong with the
  /// job is the future's error.
  Future<JobReport> submit(Job job);
  /// Waits until no job is left; with others submitting all the time, that may be never.
  void drain();

  ExecutorStats stats() const;
  Device& device() const noexcept;
  Cache& cache() const noexcept;

 private:
  explicit Executor(std::shared_ptr<exec::Core> core) noexcept : core_(std::move(core)) {}
  std::shared_ptr<exec::Core> core_;
};

}  // namespace kiln
