// What a repeated get costs, with the release of its handle, against other ways to write such a cache.
//
// The columns: `Time` is wall time divided by the hits of all threads together, so that its inverse is the
// throughput; `CPU` is the CPU time all threads spent divided by the same hits, so that it is what one hit costs
// the thread that makes it. The ratios are of CPU time, which also means something with more threads than
// processors.
//
// `per_thread` gives every thread an unsynchronized cache of its own: where that gets dearer with a second thread,
// two processors share one core, and no cache could do better.
//
// `--long` also measures the caches with locks on more than two threads, and repeats every case more often. Threads
// that wait for a lock in turn take 100 times as long at times, so that this takes from one minute to many.

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <random>
#include <span>
#include <stop_token>
#include <thread>

#include <epoxy/gl.h>
#include <fmt/format.h>

#include <kiln/cache.hpp>
#include <kiln/opengl.hpp>

#include "fixtures.hpp"
#include "report.hpp"
#include "rivals.hpp"

namespace kiln::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t many_keys = 1000;
constexpr std::array<std::string_view, 2> sections = {"hot_key", "1000_keys"};

template <class AnyCache>
void repeat_get(benchmark::State& state, AnyCache& cache, std::span<const Request> requests) {
  std::size_t next = static_cast<std::size_t>(state.thread_index()) * 61 % requests.size();
  for (auto _ : state) {
    auto program = cache.get(requests[next]);
    if (!program) {
      state.SkipWithError("get failed");
      break;
    }
    benchmark::DoNotOptimize(program);
    if (++next == requests.size()) next = 0;
  }
}

void register_hits(std::string_view name, std::span<const Request> requests, int max_threads, auto&& cache_of) {
  for (const std::string_view section : sections) {
    const auto used = section == sections[0] ? requests.first(1) : requests;
    add_case(fmt::format("{}/{}", section, name),
             [used, cache_of](benchmark::State& state) { repeat_get(state, cache_of(state.thread_index()), used); },
             {.instances = static_cast<int>(std::bit_width(static_cast<unsigned>(max_threads)))})
        ->ThreadRange(1, max_threads)
        ->UseRealTime();
  }
}

/// Registers a cache that all threads share.
template <class AnyCache>
void register_shared(std::string_view name, std::span<const Request> requests, int max_threads, AnyCache& cache) {
  for (const Request& request : requests) cache.get(request).value();
  register_hits(name, requests, max_threads, [&cache](int) -> AnyCache& { return cache; });
}

/// One batch of launches of a tiny program, each of which gets the program first; ns for one of them.
template <class AnyCache>
double launch_batch(AnyCache& cache, const Request& request) {
  constexpr int batch = 64;
  const auto start = Clock::now();
  for (int i = 0; i < batch; ++i) {
    const auto program = cache.get(request);
    glUseProgram(dynamic_cast<opengl::Module&>(program.value().module()).id());
    glDispatchCompute(1, 1, 1);
  }
  glFinish();
  return std::chrono::duration<double, std::nano>(Clock::now() - start).count() / batch;
}

/// Launches with each cache in turn, batch by batch, so that both meet the same machine: a launch is thousands
/// of times a hit, and its own noise is more than what is looked for.
void get_and_launch(benchmark::State& state, const std::shared_ptr<Device>& device) {
  const auto current = opengl::make_current(*device).value();
  const Request request({.name = "add_one",
                         .source = "#version 430\nlayout(local_size_x = 1) in;\n"
                                   "layout(std430, binding = 0) buffer A { uint a[]; };\n"
                                   "void main() { a[0] += 1u; }\n"});
  Cache cache(device, {.disk = false});
  Unsynchronized unsynchronized(*device);
  GLuint buffer = 0;
  glGenBuffers(1, &buffer);
  glBindBufferBase(GL_SHADER_STORAGE_BUFFER, 0, buffer);
  glBufferData(GL_SHADER_STORAGE_BUFFER, 64, nullptr, GL_DYNAMIC_DRAW);

  launch_batch(cache, request);
  launch_batch(unsynchronized, request);

  std::vector<double> kiln_ns;
  std::vector<double> unsynchronized_ns;
  std::vector<double> ratios;
  bool kiln_first = false;
  for (auto _ : state) {
    kiln_first = !kiln_first;
    double kiln_time = kiln_first ? launch_batch(cache, request) : 0;
    const double unsynchronized_time = launch_batch(unsynchronized, request);
    if (!kiln_first) kiln_time = launch_batch(cache, request);
    kiln_ns.push_back(kiln_time);
    unsynchronized_ns.push_back(unsynchronized_time);
    ratios.push_back(kiln_time / unsynchronized_time);
    state.SetIterationTime(kiln_time * 1e-9);
  }
  state.counters["kiln_ns"] = median(kiln_ns);
  state.counters["unsynchronized_ns"] = median(unsynchronized_ns);
  state.counters["ratio"] = median(ratios);
  glDeleteBuffers(1, &buffer);
}

void conclude(const Measured& measured, Figures& figures) {
  for (const std::string_view section : sections) {
    const auto cpu = [&](std::string_view name, int threads) {
      return measured.cpu_ns(fmt::format("{}/{}/threads:{}", section, name, threads));
    };
    const auto add = [&](std::string_view name, std::string text, std::optional<double> value, std::string unit,
                         std::optional<Target> target = {}) {
      figures.add(fmt::format("{}.{}", section, name), std::move(text), value, std::move(unit), target);
    };
    figures.section(section == sections[0] ? "A hit with its release, one hot key (CPU time)"
                                           : "A hit with its release, 1,000 keys in turn (CPU time)");
    add("kiln_1_ns", "kiln, 1 thread", cpu("kiln", 1), "ns", at_most(20));
    add("kiln_minus_unsynchronized_ns", "kiln - unsynchronized, 1 thread",
        difference(cpu("kiln", 1), cpu("unsynchronized", 1)), "ns", at_most(10));
    add("critical_section_ratio_1", "critical_section / kiln, 1 thread",
        ratio(cpu("critical_section", 1), cpu("kiln", 1)), "x", at_least(2.5));
    add("critical_section_ratio_2", "critical_section / kiln, 2 threads",
        ratio(cpu("critical_section", 2), cpu("kiln", 2)), "x");
    add("critical_section_over_per_thread_2", "for comparison: critical_section / per_thread, 2 threads",
        ratio(cpu("critical_section", 2), cpu("per_thread", 2)), "x");
    add("kiln_2_over_1", "kiln, 2 threads / 1 thread", ratio(cpu("kiln", 2), cpu("kiln", 1)), "x", at_most(1.3));
    add("per_thread_2_over_1", "for comparison: per_thread, 2 threads / 1 thread",
        ratio(cpu("per_thread", 2), cpu("per_thread", 1)), "x");
    for (const int threads : {2, 4, 8, 16})
      add(fmt::format("kiln_{}_ns", threads), fmt::format("kiln, {} threads", threads), cpu("kiln", threads), "ns");
    for (const std::string_view rival : {"shared_mutex", "tbb"}) {
      add(fmt::format("{}_ratio_2", rival), fmt::format("{} / kiln, 2 threads", rival),
          ratio(cpu(rival, 2), cpu("kiln", 2)), "x");
    }
    const auto wall = [&](std::string_view name, int threads) {
      return measured.real_ns(fmt::format("{}/{}/threads:{}", section, name, threads));
    };
    // A thread that sleeps for a mutex takes no CPU time: what it waited for shows in the hits per second alone.
    // With many keys, per_thread above is the most that any cache could reach.
    const std::optional<Target> target = section == sections[0] ? std::optional(at_least(15)) : std::nullopt;
    add("critical_section_throughput_ratio_2", "hits per second, kiln / critical_section, 2 threads",
        ratio(wall("critical_section", 2), wall("kiln", 2)), "x", target);
    add("critical_section_throughput_ratio_16", "hits per second, kiln / critical_section, 16 threads",
        ratio(wall("critical_section", 16), wall("kiln", 16)), "x");
  }
  // Threads that take turns on a processor do not contend, and what needs contention to show does not show.
  const auto both =
      ratio(measured.cpu_ns("hot_key/per_thread/threads:2"), measured.real_ns("hot_key/per_thread/threads:2"));
  figures.section("The machine");
  figures.add("processors_had", "processors 2 threads had (below 1.8: too busy for ratios)", both, "");
  figures.section("A get and a launch of the smallest program, on OpenGL");
  figures.add("get_and_launch.kiln_ns", "kiln", measured.counter("get_and_launch", "kiln_ns"), "ns");
  figures.add("get_and_launch.unsynchronized_ns", "unsynchronized",
              measured.counter("get_and_launch", "unsynchronized_ns"), "ns");
  figures.add("get_and_launch.ratio", "kiln / unsynchronized, median of pairs",
              measured.counter("get_and_launch", "ratio"), "x", below(1.05));
}

int run(int argc, char** argv) {
  CommandLine command_line(argc, argv, 11, 0.015, 41);
  EmptyBackend backend;
  std::vector<Request> requests = made_up_requests(many_keys);
  std::shuffle(requests.begin(), requests.end(), std::mt19937(1));

  // Where a process has a second thread, locks and shared_ptr work for real; a process with a GPU driver has one.
  const std::jthread second_thread([](const std::stop_token& stop) {
    std::mutex mutex;
    std::unique_lock lock(mutex);
    std::condition_variable_any().wait(lock, stop, [] { return false; });
  });

  constexpr int max_threads = 16;
  const int locking_threads = command_line.is_long() ? max_threads : 2;
  Cache kiln(std::make_shared<EmptyBackend>(), {.disk = false});
  Unsynchronized unsynchronized(backend);
  CriticalSection critical_section(backend);
  SharedMutex shared_mutex(backend);
  register_shared("kiln", requests, max_threads, kiln);
  register_shared("unsynchronized", requests, 1, unsynchronized);
  std::vector<std::unique_ptr<Unsynchronized>> of_threads;
  for (int i = 0; i < max_threads; ++i) {
    of_threads.push_back(std::make_unique<Unsynchronized>(backend));
    for (const Request& request : requests) of_threads.back()->get(request).value();
  }
  register_hits("per_thread", requests, max_threads,
                [&](int thread) -> Unsynchronized& { return *of_threads[static_cast<std::size_t>(thread)]; });
  register_shared("critical_section", requests, locking_threads, critical_section);
  register_shared("shared_mutex", requests, locking_threads, shared_mutex);
#if KILN_BENCH_TBB
  Tbb tbb(backend);
  register_shared("tbb", requests, locking_threads, tbb);
#endif

  const auto device = open_device("opengl");
  if (device) {
    benchmark::AddCustomContext("OpenGL", (*device)->identity().device);
    add_case("get_and_launch", [&](benchmark::State& state) { get_and_launch(state, *device); })
        ->UseManualTime()
        ->Iterations(25);
  } else {
    fmt::print(stderr, "get_and_launch is left out: {}\n", device.error().message());
  }
  return command_line.run(conclude);
}

}  // namespace
}  // namespace kiln::bench

int main(int argc, char** argv) { return kiln::bench::guarded(kiln::bench::run, argc, argv); }
