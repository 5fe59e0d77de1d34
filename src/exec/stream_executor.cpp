#include <kiln/stream_executor.hpp>

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/try.hpp"
#include "exec/job.hpp"

namespace kiln {

class StreamExecutor::Impl {
 public:
  Impl(Cache& of, Stream& on) : cache(of), stream_(on) {}

  Result<void> submit(const Job& job) {
    KILN_TRY(check(job));
    for (const Pending& before : job.after)
      if (const Error* error = before.error())
        return Error(error->code(), fmt::format("{} was not run because a dependency failed: {}", exec::title(job),
                                                error->message()));
    auto needed = std::make_shared<Needed>();
    for (const Step& step : job.steps) {
      auto program = KILN_TRY(cache.get(step.request));
      if (!step.entry.empty()) program = KILN_TRY(program.entry(step.entry));
      needed->programs.push_back(std::move(program));
    }
    KILN_TRY(find_memory(job, *needed));
    std::vector<const Buffer*> places;
    for (const auto& buffer : needed->buffers) places.push_back(buffer.get());
    Result<void> done;
    for (std::size_t i = 0; i < job.steps.size() && done; ++i)
      done = stream_.launch(needed->programs[i].module(), job.steps[i].launch.with(places));
    // A graph may run again at any time.
    if (stream_.is_captured()) std::erase_if(lent_, [this](const Lent& lent) { return lent.job == jobs_; });
    if (!job.steps.empty()) stream_.hold(std::move(needed));
    if (done) return done;
    return Error(done.error().code(), fmt::format("{}: {}", exec::title(job), done.error().message()));
  }

  Cache& cache;

 private:
  /// What the work of a job needs.
  struct Needed {
    std::vector<Program> programs;
    std::vector<std::shared_ptr<Buffer>> buffers;
  };
  struct Lent {
    std::shared_ptr<Buffer> buffer;
    /// The last job that used it.
    std::uint64_t job = 0;
  };

  Result<void> check(const Job& job) const {
    const auto refuse = [&job](std::string why) {
      return Error(ErrorCode::invalid_request, fmt::format("{}: {}", exec::title(job), why));
    };
    if (!stream_.in_order()) return refuse("the steps of a job must run in order, but the queue is out-of-order");
    for (std::size_t i = 0; i < job.memory.size(); ++i) {
      const JobMemory& memory = job.memory[i];
      if (memory.fill || memory.drain || !memory.upload.empty() || !memory.download.empty())
        return refuse(
            fmt::format("memory {} is copied from or to the host; on a stream of your own, enqueue the "
                        "copies yourself",
                        i));
    }
    return exec::check(job);
  }

  Result<void> find_memory(const Job& job, Needed& needed) {
    ++jobs_;
    std::erase_if(lent_, [this](const Lent& lent) { return jobs_ - lent.job > exec::patience; });
    for (const JobMemory& memory : job.memory)
      needed.buffers.push_back(memory.buffer != nullptr ? memory.buffer
                                                        : KILN_TRY(lend(exec::rounded(memory.bytes))));
    return {};
  }

  /// Memory that no other place of this job has. Earlier jobs may still use it: the stream is in order.
  Result<std::shared_ptr<Buffer>> lend(std::size_t bytes) {
    for (Lent& lent : lent_)
      if (lent.job != jobs_ && lent.buffer->size() == bytes) {
        lent.job = jobs_;
        return lent.buffer;
      }
    auto* const device = dynamic_cast<Device*>(&cache.backend());
    if (device == nullptr) return Error(ErrorCode::invalid_request, "the backend of the cache is not a device");
    auto buffer = device->allocate(bytes);
    if (!buffer && buffer.error().code() == ErrorCode::out_of_memory) {
      // Frees what earlier jobs were lent and the stream is done with.
      std::erase_if(lent_, [this](const Lent& lent) { return lent.job != jobs_; });
      stream_.hold(nullptr);
      buffer = device->allocate(bytes);
    }
    if (!buffer) return std::move(buffer).error();
    lent_.push_back({std::move(*buffer), jobs_});
    return lent_.back().buffer;
  }

  Stream& stream_;
  std::vector<Lent> lent_;
  std::uint64_t jobs_ = 0;
};

StreamExecutor::StreamExecutor(Cache& cache, Stream& stream) : impl_(std::make_unique<Impl>(cache, stream)) {}
StreamExecutor::~StreamExecutor() = default;
Result<void> StreamExecutor::submit(const Job& job) { return impl_->submit(job); }
Cache& StreamExecutor::cache() const noexcept { return impl_->cache; }

}  // namespace kiln
