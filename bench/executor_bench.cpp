// A stream of jobs (upload a batch of images, conv2d, download the result) on every API there is here, in the ways
// people come to write it, a job:
//
// `first`: memory is allocated, filled from the caller's, the program run and waited for, the result copied out,
// the
//   memory freed, for every job.
// `reused`: the same with the memory allocated once.
// `pinned`: the same with the caller's data in pinned memory, waiting after each part; its parts are u, c and d.
// `duplex`: the uploads and the downloads alone, all of them at once: what the way to the device allows.
// `executor`: kiln::Executor, with the caller's data made in its pinned memory and used there (JobMemory::fill and
// drain);
//   making and using are nobody's time here, as they are in the ways above.
// `copying`: the executor from and to memory of the caller's that is not pinned.
// `same`, `other`: a job of 64 launches of one small program, and of two in turn: what changing the program costs.

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <stdexcept>

#include <fmt/format.h>

#include <kiln/executor.hpp>
#include <kiln/kernel.hpp>
#include <kiln/slot.hpp>

#include "convolution.hpp"
#include "fixtures.hpp"
#include "report.hpp"

namespace kiln::bench {
namespace {

constexpr std::array apis = {"cuda", "hip", "vulkan", "opengl", "opencl"};
/// Jobs that are handed to the executor at once.
constexpr std::size_t jobs_at_once = 64;
constexpr int launches_of_a_chain = 64;

using Clock = std::chrono::steady_clock;

double seconds(std::chrono::nanoseconds time) { return std::chrono::duration<double>(time).count(); }

/// A device with what the stream needs: the program, the weights on the device, batches and results of the
/// caller's.
class Stream {
 public:
  Stream(std::shared_ptr<Device> device, const Convolution& convolution)
      : device_(std::move(device)),
        cache_(device_, {.directory = folder_.path()}),
        work_(convolution.work(device_)),
        program_(cache_.get(work_.step.request).value()),
        batch_(convolution.input_count()),
        results_(jobs_at_once, std::vector<float>(convolution.output_count())) {
    for (std::size_t i = 0; i < batch_.size(); ++i) batch_[i] = static_cast<float>(i % 17) - 8;
  }

  Device& device() const { return *device_; }
  Cache& cache() { return cache_; }
  const std::shared_ptr<Device>& shared_device() const { return device_; }
  std::size_t input_bytes() const { return batch_.size() * sizeof(float); }
  std::size_t output_bytes() const { return results_.front().size() * sizeof(float); }

  void first() {
    const auto x = device_->allocate(input_bytes()).value();
    const auto y = device_->allocate(output_bytes()).value();
    run(*x, *y);
  }
  void reused() {
    if (x_ == nullptr) {
      x_ = device_->allocate(input_bytes()).value();
      y_ = device_->allocate(output_bytes()).value();
    }
    run(*x_, *y_);
  }
  /// What each part took, by the device's clock.
  JobReport pinned() {
    if (slot_ == nullptr) {
      reused();
      slot_ = device_->open_slot().value();
      staging_ = slot_->staging(input_bytes() + output_bytes()).value();
      std::memcpy(staging_.data(), batch_.data(), input_bytes());
    }
    JobReport report;
    const auto end = [this] {
      slot_->submit().value();
      slot_->wait().value();
      const auto times = slot_->times();
      return times.empty() ? std::chrono::nanoseconds{}
                           : std::chrono::duration_cast<std::chrono::nanoseconds>(times[0].end - times[0].begin);
    };
    slot_->upload(*x_, 0, 0, input_bytes()).value();
    report.upload = end();
    slot_->launch(program_.module(), launch(*x_, *y_)).value();
    report.compute = end();
    slot_->download(*y_, 0, input_bytes(), output_bytes()).value();
    report.download = end();
    return report;
  }
  /// Uploads while there are downloads, as they are in a stream of jobs: links and memory are shared.
  void duplex() {
    if (up_ == nullptr) {
      reused();
      up_ = device_->open_slot().value();
      down_ = device_->open_slot().value();
      up_->staging(input_bytes()).value();
      down_->staging(output_bytes()).value();
    }
    for (std::size_t i = 0; i < jobs_at_once; ++i) {
      up_->upload(*x_, 0, 0, input_bytes()).value();
      down_->download(*y_, 0, 0, output_bytes()).value();
    }
    up_->submit().value();
    down_->submit().value();
    up_->wait().value();
    down_->wait().value();
  }
  /// Slots take their part of the device: the executor has its own.
  void close_slots() {
    slot_.reset();
    up_.reset();
    down_.reset();
  }
  /// All of jobs_at_once, from and to memory that is not pinned.
  void copying(Executor& executor) {
    std::vector<Future<JobReport>> futures;
    for (std::size_t i = 0; i < jobs_at_once; ++i) {
      Job job{.name = "conv2d"};
      job.memory = {{.upload = std::as_bytes(std::span(batch_))},
                    {.buffer = work_.filters},
                    {.download = std::as_writable_bytes(std::span(results_[i]))}};
      job.steps = {work_.step};
      futures.push_back(executor.submit(std::move(job)));
    }
    for (const auto& future : futures) future.get().value();
  }
  /// The same with batches that are there already and results that are looked at.
  void by_executor(Executor& executor) {
    std::vector<Future<JobReport>> futures;
    for (std::size_t i = 0; i < jobs_at_once; ++i) {
      Job job{.name = "conv2d"};
      job.memory = {{.bytes = input_bytes(), .fill = [this](std::span<std::byte> to) { make_once(to); }},
                    {.buffer = work_.filters},
                    {.bytes = output_bytes(), .drain = [this](std::span<const std::byte> from) { look(from); }}};
      job.steps = {work_.step};
      futures.push_back(executor.submit(std::move(job)));
    }
    for (const auto& future : futures) future.get().value();
  }
  bool all_right() const { return wrong_ == 0; }
  /// Whether every result is that of the first way.
  bool agree() {
    const std::vector<std::vector<float>> others(results_.begin() + 1, results_.end());
    first();
    return std::ranges::all_of(others, [this](const auto& result) { return result == results_.front(); });
  }

 private:
  /// Staging memory keeps what was made in it.
  void make_once(std::span<std::byte> to) const {
    for (const std::size_t at : {std::size_t{0}, to.size() / 2, to.size() - 64})
      if (std::memcmp(to.data() + at, reinterpret_cast<const std::byte*>(batch_.data()) + at, 64) != 0) {
        std::memcpy(to.data(), batch_.data(), to.size());
        return;
      }
  }
  void look(std::span<const std::byte> from) {
    for (const std::size_t at : {std::size_t{0}, from.size() / 2, from.size() - 64})
      if (std::memcmp(from.data() + at, reinterpret_cast<const std::byte*>(results_.front().data()) + at, 64) != 0)
        ++wrong_;
  }
  Launch launch(const Buffer& x, const Buffer& y) const {
    const std::array<const Buffer*, 3> memory = {&x, work_.filters.get(), &y};
    return work_.step.launch.with(memory);
  }
  void run(Buffer& x, Buffer& y) {
    device_->write(x, std::as_bytes(std::span(batch_))).value();
    device_->launch(program_.module(), launch(x, y)).value();
    device_->read(y, std::as_writable_bytes(std::span(results_.front()))).value();
  }

  TemporaryFolder folder_;
  std::shared_ptr<Device> device_;
  Cache cache_;
  Convolution::Work work_;
  Program program_;
  std::vector<float> batch_;
  std::vector<std::vector<float>> results_;
  std::atomic<int> wrong_ = 0;
  std::unique_ptr<Buffer> x_;
  std::unique_ptr<Buffer> y_;
  std::unique_ptr<Slot> slot_;
  std::span<std::byte> staging_;
  std::unique_ptr<Slot> up_;
  std::unique_ptr<Slot> down_;
};

/// y = x, but for a constant that makes it a program of its own.
Kernel small(int number) {
  return {.name = fmt::format("small_{}", number),
          .buffers = {{"x"}, {"y", Type::f32, Access::write}},
          .parameters = {{"MORE", fmt::format("{}.0f", number)}},
          .source = "KERNEL {\n  y[global_id_x] = x[global_id_x] + MORE;\n}\n"};
}

/// A job of many launches of small programs, each on what the one before wrote.
Job chain(const Device& device, bool of_two) {
  Job job{.name = "chain", .memory = {{.bytes = 256}, {.bytes = 256}}};
  const std::array requests = {small(1).request(device).value(), small(2).request(device).value()};
  for (std::size_t i = 0; i < launches_of_a_chain; ++i)
    job.steps.push_back(
        {.request = requests[of_two ? i % 2 : 0],
         .launch = {.group_size = small(1).group_size, .arguments = {job_memory(i % 2), job_memory(1 - i % 2)}}});
  return job;
}

void add_stream(const std::string& api, const std::shared_ptr<Device>& device, const Convolution& convolution,
                unsigned lanes) {
  const std::string name = fmt::format("{}/{}", api, convolution.name());
  auto stream = std::make_shared<Stream>(device, convolution);
  const auto add = [&](const char* way, auto work) {
    add_case(name + "/" + way, [stream, work](benchmark::State& state) {
      for ([[maybe_unused]] auto _ : state) work(state);
    })->UseManualTime();
  };
  const auto timed = [stream](auto work) {
    return [stream, work](benchmark::State& state) {
      const auto start = Clock::now();
      work(*stream);
      state.SetIterationTime(seconds(Clock::now() - start));
    };
  };
  add("first", timed([](Stream& on) { on.first(); }));
  add("reused", timed([](Stream& on) { on.reused(); }));
  add_case(name + "/pinned", [stream](benchmark::State& state) {
    std::vector<double> u;
    std::vector<double> c;
    std::vector<double> d;
    for ([[maybe_unused]] auto _ : state) {
      const auto start = Clock::now();
      const JobReport report = stream->pinned();
      state.SetIterationTime(seconds(Clock::now() - start));
      u.push_back(1e6 * seconds(report.upload));
      c.push_back(1e6 * seconds(report.compute));
      d.push_back(1e6 * seconds(report.download));
    }
    state.counters["u_us"] = median(u);
    state.counters["c_us"] = median(c);
    state.counters["d_us"] = median(d);
  })->UseManualTime();
  add("duplex", timed([](Stream& on) { on.duplex(); }));
  add_case(name + "/copying", [stream, lanes](benchmark::State& state) {
    stream->close_slots();
    auto executor = Executor::create(stream->shared_device(), stream->cache(), {.lanes = lanes}).value();
    stream->copying(*executor);
    for ([[maybe_unused]] auto _ : state) {
      const auto start = Clock::now();
      stream->copying(*executor);
      state.SetIterationTime(seconds(Clock::now() - start));
    }
    if (!stream->agree()) state.SkipWithError("the executor computed something else");
  })->UseManualTime();
  add_case(name + "/executor", [stream, lanes](benchmark::State& state) {
    stream->close_slots();
    auto executor = Executor::create(stream->shared_device(), stream->cache(), {.lanes = lanes}).value();
    stream->first();
    stream->by_executor(*executor);
    for ([[maybe_unused]] auto _ : state) {
      const auto start = Clock::now();
      stream->by_executor(*executor);
      state.SetIterationTime(seconds(Clock::now() - start));
    }
    if (!stream->all_right()) state.SkipWithError("the executor computed something else");
  })->UseManualTime();
}

void add_switch(const std::string& api, const std::shared_ptr<Device>& device) {
  auto folder = std::make_shared<TemporaryFolder>();
  auto cache = std::make_shared<Cache>(device, CacheOptions{.directory = folder->path()});
  for (const bool of_two : {false, true})
    add_case(fmt::format("{}/switch/{}", api, of_two ? "other" : "same"), [device, folder, cache,
                                                                           of_two](benchmark::State& state) {
      auto executor = Executor::create(device, *cache, {.lanes = 1}).value();
      const Job job = chain(*device, of_two);
      executor->submit(job).get().value();
      for ([[maybe_unused]] auto _ : state) {
        const auto start = Clock::now();
        executor->submit(job).get().value();
        state.SetIterationTime(seconds(Clock::now() - start));
      }
    })->UseManualTime();
}

/// What was measured of an API. On a CPU, where all parts are the same cores' work, nothing is asked of the stream.
struct Streams {
  std::string api;
  bool software = false;
  std::vector<Convolution> convolutions;
};

void conclude(const Measured& measured, Figures& figures, const std::vector<Streams>& all) {
  for (const auto& [api, software, convolutions] : all)
    for (const Convolution& convolution : convolutions) {
      const std::string name = fmt::format("{}/{}", api, convolution.name());
      const auto time = [&](std::string_view way) -> std::optional<double> {
        const auto ns = measured.real_ns(fmt::format("{}/{}", name, way));
        return ns && (way == "executor" || way == "copying" || way == "duplex") ? *ns / jobs_at_once : ns;
      };
      const auto part = [&](const char* counter) { return measured.counter(name + "/pinned", counter); };
      const auto first = time("first");
      if (!first) continue;
      figures.section(fmt::format("{}: {}, {:.1f} MB up and {:.1f} MB down, a job", api, convolution.name(),
                                  static_cast<double>(convolution.input_count()) * 4e-6,
                                  static_cast<double>(convolution.output_count()) * 4e-6));
      const auto us = [](std::optional<double> ns) { return ns ? std::optional(*ns / 1000) : ns; };
      const auto add = [&](const char* figure, std::string text, std::optional<double> value, const char* unit,
                           std::optional<Target> target = {}) {
        figures.add(fmt::format("{}_{}_{}", api, convolution.name(), figure), std::move(text), value, unit, target);
      };
      add("first_us", "allocate, copy, launch, wait, copy, free", us(first), "us");
      add("reused_us", "with memory allocated once", us(time("reused")), "us");
      add("pinned_us", "with the data in pinned memory", us(time("pinned")), "us");
      add("executor_us", "by the executor", us(time("executor")), "us");
      add("copying_us", "by the executor, from and to memory that is not pinned", us(time("copying")), "us");
      add("gain_reused", "gain by allocating once", ratio(first, time("reused")), "x");
      add("gain_pinned", "gain by pinned memory on top", ratio(time("reused"), time("pinned")), "x");
      add("gain_executor", "gain by the executor on top", ratio(time("pinned"), time("executor")), "x");
      add("gain", "gain in all", ratio(first, time("executor")), "x",
          software ? std::nullopt : std::optional(at_least(6.5)));
      add("gain_copying", "gain in all from and to memory that is not pinned", ratio(first, time("copying")), "x");
      const auto u = part("u_us");
      const auto c = part("c_us");
      const auto d = part("d_us");
      add("u_us", "upload alone, u", u, "us");
      add("c_us", "compute alone, c", c, "us");
      add("d_us", "download alone, d", d, "us");
      add("duplex_us", "upload and download at once, without compute", us(time("duplex")), "us");
      if (!u || !c || !d) continue;
      const double longest = std::max({*u, *c, *d});
      add("bound", "bound of the overlap, (u + c + d) / max(u, c, d)", (*u + *c + *d) / longest, "x");
      const auto reached = ratio(longest, us(time("executor")));
      const auto both = us(time("duplex"));
      add("reached_duplex", "reached of the bound with copies at once",
          both ? ratio(100 * std::max(longest, *both), us(time("executor"))) : both, "%");
      add("reached", "reached of the bound", reached ? std::optional(100 * *reached) : reached, "%",
          software ? std::nullopt : std::optional(at_least(90)));
    }
  for (const auto& [api, software, convolutions] : all) {
    const auto launch = [&, &name = api](const char* way) {
      const auto ns = measured.real_ns(fmt::format("{}/switch/{}", name, way));
      return ns ? std::optional(*ns / launches_of_a_chain) : ns;
    };
    const auto same = launch("same");
    const auto other = launch("other");
    if (!same) continue;
    figures.section(fmt::format("{}: a launch in a job of {}", api, launches_of_a_chain));
    const auto us = [](std::optional<double> ns) { return ns ? std::optional(*ns / 1000) : ns; };
    figures.add(api + "_same_us", "of the same program", us(same), "us");
    figures.add(api + "_other_us", "of two programs in turn", us(other), "us");
    figures.add(api + "_switch_us", "a change of the program", us(difference(other, same)), "us", below(10));
  }
}

int run(int argc, char** argv) {
  // KILN_LANES and KILN_APIS narrow it down; so does --benchmark_filter, but devices are opened all the same.
  const char* lanes = std::getenv("KILN_LANES");
  const char* only = std::getenv("KILN_APIS");
  CommandLine command_line(argc, argv, 5, 0.2);
  // One whose parts take some tens of microseconds on a GPU, one of some hundreds, and one that computes for longer
  // than it copies; on a CPU, something small.
  const std::vector<Convolution> on_gpu = {{.images = 4, .channels = 16, .size = 64, .filters = 16},
                                           {.images = 4, .channels = 32, .size = 128, .filters = 32},
                                           {.images = 4, .channels = 64, .size = 128, .filters = 64, .extent = 5}};
  const std::vector<Convolution> on_cpu = {{.images = 1, .channels = 4, .size = 32, .filters = 4}};
  std::vector<Streams> all;
  for (const std::string api : apis) {
    if (only != nullptr && std::string_view(only).find(api) == std::string_view::npos) continue;
    const auto device = open_device(api);
    if (!device) continue;
    const bool software = (*device)->info().software;
    all.push_back({api, software, software ? on_cpu : on_gpu});
    for (const Convolution& convolution : all.back().convolutions)
      add_stream(api, *device, convolution, lanes != nullptr ? static_cast<unsigned>(std::atoi(lanes)) : 0);
    add_switch(api, *device);
  }
  return command_line.run([&](const Measured& measured, Figures& figures) { conclude(measured, figures, all); });
}

}  // namespace
}  // namespace kiln::bench

int main(int argc, char** argv) { return kiln::bench::guarded(kiln::bench::run, argc, argv); }
