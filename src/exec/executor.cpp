#include <kiln/executor.hpp>

#include <cstdlib>
#include <utility>

#include "base/process.hpp"
#include "exec/scheduler.hpp"

namespace kiln {
namespace {

std::filesystem::path trace_file(const ExecutorOptions& options) {
  if (!options.trace.empty()) return options.trace;
  const char* file = base::environment("KILN_TRACE");
  return file != nullptr ? file : "";
}

}  // namespace

Result<std::unique_ptr<Executor>> Executor::create(std::shared_ptr<Device> device, Cache& cache,
                                                   ExecutorOptions options) {
  if (!device->usable_from_any_thread())
    return Error(ErrorCode::unsupported,
                 device->info().name + " can be used only on the caller's threads, but an executor starts its own");
  if (&cache.backend() != device.get())
    return Error(ErrorCode::invalid_request,
                 "the cache belongs to another device; create one for " + device->info().name);
  std::unique_ptr<exec::Trace> trace;
  if (const auto file = trace_file(options); !file.empty()) {
    auto opened = exec::Trace::open(file);
    if (opened) {
      trace = std::move(*opened);
    } else {
      options.log.warning("tracing is off: " + opened.error().message());
    }
  }
  auto scheduler =
      std::make_shared<exec::Scheduler>(std::move(device), cache, std::move(options), std::move(trace));
  if (auto started = scheduler->start(); !started) {
    scheduler->stop();
    return std::move(started).error();
  }
  return std::unique_ptr<Executor>(new Executor(std::move(scheduler)));
}

Executor::~Executor() { scheduler_->stop(); }

Future<JobReport> Executor::submit(Job job) { return scheduler_->submit(std::move(job)); }
void Executor::drain() { scheduler_->drain(); }
ExecutorStats Executor::stats() const { return scheduler_->stats(); }
Device& Executor::device() const noexcept { return scheduler_->device(); }
Cache& Executor::cache() const noexcept { return scheduler_->cache(); }

}  // namespace kiln
