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

/// Memory that a job works on: lent by the executor for the time of the job, or the caller's own buffer.
struct JobMemory {
  /// The size of lent memory; not needed if a span below gives it. Its content is unspecified at first.
  std::size_t bytes = 0;
  /// The caller's own buffer, of the executor's device. The job shares ownership of it until it has ended. Jobs
  /// that share a buffer must be ordered by Job::after, or only read it.
  std::shared_ptr<Buffer> buffer = {};
  /// Copied in before the first step. Not owned: must stay valid and unchanged until the future is ready.
  std::span<const std::byte> upload = {};
  /// Instead of `upload`: writes the data directly into memory that the device copies from. Called on a thread of
  /// the executor, and again if the device runs out of memory and the job is retried. The span covers the whole
  /// memory, whose size `bytes` or `buffer` must give. If it throws, the job fails with callback_failed.
  std::function<void(std::span<std::byte>)> fill = {};
  /// Copied out after the last step. Not owned: must stay valid, and must not be used, until the future is ready.
  std::span<std::byte> download = {};
  /// Instead of `download`: reads the data directly from memory that the device has copied to. Called on a thread
  /// of the executor. If it throws, the job fails with callback_failed.
  std::function<void(std::span<const std::byte>)> drain = {};
};

/// One run of a program within a job. A value.
struct Step {
  /// The program, which the executor gets from its cache.
  Request request;
  /// Which of its entry points to run; empty if it has only one.
  std::string entry = {};
  /// The run. Buffers are those of the job, by job_memory(), because a job that timed out may still use them.
  /// Buffers that are given directly, images and samplers are refused.
  Launch launch = {};
  /// Floating-point operations and bytes read and written, if known: noted with the program as GFLOP/s and GB/s.
  double flops = 0;
  double bytes = 0;
};

struct JobReport;

/// Work for a device: uploads, then the steps one after the other, then downloads. A value that does not own the
/// spans in `memory`.
struct Job {
  /// For errors and traces.
  std::string name = {};
  std::vector<JobMemory> memory = {};
  std::vector<Step> steps = {};
  /// Futures that must succeed before this job begins, of this executor or another. If one fails, this job fails
  /// with its code and is not run.
  std::vector<Pending> after = {};
  /// How long it may take once a lane has taken it; 0: ExecutorOptions::time_limit.
  std::chrono::nanoseconds time_limit = {};
  /// Called with the job's times if it succeeds, before the future is ready. Runs on a thread of the executor that
  /// has other work to do, so it should return soon. Its exceptions are ignored.
  std::function<void(const JobReport&)> report = {};
};

/// The times of a job by the device's clock; 0, and no steps, if the device has none.
struct JobReport {
  std::chrono::nanoseconds upload = {};
  std::chrono::nanoseconds compute = {};
  std::chrono::nanoseconds download = {};
  /// The time of each step.
  std::vector<std::chrono::nanoseconds> steps = {};
  /// The lane it ran on.
  unsigned lane = 0;
};

/// Options of an executor.
struct ExecutorOptions {
  /// Threads, each with three slots. 0: DeviceInfo::lanes.
  unsigned lanes = 0;
  /// The most jobs that may wait to begin; submit() blocks while the queue is full. At least 1.
  std::size_t queue = 256;
  /// How long a job may take once a lane has taken it; then it fails with timed_out. 0: no limit.
  std::chrono::nanoseconds time_limit = {};
  /// How long a lane may take to open a slot. If the device does not answer by then, create() or the jobs fail with
  /// device_failed. 0: no limit.
  std::chrono::nanoseconds open_limit = std::chrono::minutes(1);
  /// Threads for continuations (Future::then()); at least 1.
  unsigned continuation_threads = 1;
  /// A file for a trace of what ran when (docs/executor.md). Empty: `$KILN_TRACE`; no trace if that is empty too.
  /// If it cannot be written, a warning is logged.
  std::filesystem::path trace = {};
  /// Receives the executor's messages.
  Log log = {};
};

/// Counters of an executor since it was created. A value.
struct ExecutorStats {
  /// Jobs, by how they ended. `failed` includes those that are invalid and those whose predecessors failed.
  std::uint64_t submitted = 0;
  std::uint64_t succeeded = 0;
  std::uint64_t failed = 0;
  std::uint64_t cancelled = 0;
  std::uint64_t timed_out = 0;
  /// Steps handed to the device.
  std::uint64_t launches = 0;
  /// Launches of another program than the one before on the same lane.
  std::uint64_t program_switches = 0;
  /// Times that the device had no memory left, and unused programs and idle memory were released.
  std::uint64_t memory_retries = 0;
  /// Jobs that wait or run at this moment.
  std::uint64_t unfinished = 0;
};

/// Runs jobs on a device, asynchronously: while one job computes, the next is uploaded and the last downloaded.
///
/// Each lane is a thread that owns three slots and everything in them; a job is a value that is handed to one lane.
/// Lanes share nothing else, so results do not depend on their number. All functions may be called from any thread.
class Executor {
 public:
  /// An executor for `device`, of which it shares ownership. `cache` must be one for the same device and outlive
  /// the executor. Fails with unsupported if the device works on the caller's threads only (an OpenGL context that
  /// was adopted without sharing), with invalid_request if the cache is for another backend, with device_failed if
  /// no thread can be started or no slot opens within ExecutorOptions::open_limit, and as Device::open_slot() does.
  static Result<std::unique_ptr<Executor>> create(std::shared_ptr<Device> device, Cache& cache,
                                                  ExecutorOptions options = {});
  /// Waits until all jobs and continuations have ended. A thread that does not return from the driver after a job
  /// has timed out is left behind. Must not be called on a thread of the executor. Futures outlive the executor.
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  /// Queues a job. Blocks while the queue is full, except on the executor's own threads. The job begins once its
  /// programs are there and the futures in Job::after have succeeded.
  ///
  /// All errors are in the future: invalid_request if the job contradicts itself (a step uses memory that the job
  /// does not have, a span is larger than its buffer, …) or as in Device::launch(); the errors of Cache::get() for
  /// its programs; the code of the future in Job::after that failed; callback_failed if `fill` or `drain` threw;
  /// out_of_memory if it does not fit although no other job runs and unused programs are evicted; cancelled;
  /// timed_out; device_failed. After timed_out the executor no longer touches the caller's spans, and keeps buffers
  /// and programs until the device is done with them.
  Future<JobReport> submit(Job job);
  /// Waits until no job is left; may never return if other threads keep submitting. Must not be called from `fill`,
  /// `drain` or `report` of a job, which would wait for itself.
  void drain();

  /// A snapshot of the counters; other threads may change them meanwhile.
  ExecutorStats stats() const;
  /// The device and the cache given to create(). Valid as long as the executor.
  Device& device() const noexcept;
  Cache& cache() const noexcept;

 private:
  explicit Executor(std::shared_ptr<exec::Scheduler> core) noexcept : scheduler_(std::move(core)) {}
  std::shared_ptr<exec::Scheduler> scheduler_;
};

}  // namespace kiln
