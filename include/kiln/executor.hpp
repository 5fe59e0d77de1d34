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
class Scheduler;
}

/// Memory that a job works on: the slot's, which is there for the time of the job, or the caller's own.
struct JobMemory {
  /// The size of what the slot lends; not needed if a span below gives it. Its content is unspecified at first.
  std::size_t bytes = 0;
  /// The caller's, kept until the job has ended. Jobs that share one are ordered by Job::after, or only read it.
  std::shared_ptr<Buffer> buffer = {};
  /// Copied in before the first step. The bytes must stay valid and unchanged until the future is ready.
  std::span<const std::byte> upload = {};
  /// Instead of `upload`: writes the data straight into memory that the device copies from. Called on a thread of
  /// the executor, and again if the device runs out of memory and the job is retried. Requires `bytes`, or a
  /// `buffer`, whose size the span then has.
  std::function<void(std::span<std::byte>)> fill = {};
  /// Copied out after the last step. Nobody else may use these bytes until the future is ready.
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
  /// How much it computes and moves, if known: noted with the program as GFLOP/s and GB/s.
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
  /// Called with the job's times if it succeeds, before the future is ready. Runs on a thread of the executor that
  /// has other work to do, so it should return soon.
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
  /// The most jobs that may wait to begin; submit() blocks while the queue is full. At least 1.
  std::size_t queue = 256;
  /// How long a job may take from when a lane takes it; 0: no limit.
  std::chrono::nanoseconds time_limit = {};
  /// How long a lane may take to open a slot. If the device does not answer by then, create() or the jobs fail. 0:
  /// no limit.
  std::chrono::nanoseconds open_limit = std::chrono::minutes(1);
  /// Threads for continuations.
  unsigned continuation_threads = 1;
  /// A file for a trace of what ran when (docs/executor.md). Empty: `$KILN_TRACE`; no trace if that is empty
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
/// Each lane is a thread that owns three slots and everything in them; a job is a value that is handed to one lane.
/// Lanes share nothing else, so results do not depend on their number. All functions may be called from any thread.
/// The destructor waits until all jobs and continuations have ended.
class Executor {
 public:
  /// `cache` must be one for `device` and outlive the executor. Fails where a lane cannot be opened, or where the
  /// device is of one thread alone (an OpenGL context that was adopted without sharing).
  static Result<std::unique_ptr<Executor>> create(std::shared_ptr<Device> device, Cache& cache,
                                                  ExecutorOptions options = {});
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  /// Queues a job. Blocks while the queue is full, except on the executor's own threads. If the job is invalid or
  /// fails, the future holds the error.
  Future<JobReport> submit(Job job);
  /// Waits until no job is left; may never return if others keep submitting.
  void drain();

  ExecutorStats stats() const;
  Device& device() const noexcept;
  Cache& cache() const noexcept;

 private:
  explicit Executor(std::shared_ptr<exec::Scheduler> core) noexcept : scheduler_(std::move(core)) {}
  std::shared_ptr<exec::Scheduler> scheduler_;
};

}  // namespace kiln
