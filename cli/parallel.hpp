#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <future>
#include <thread>
#include <vector>

namespace kiln::cli {

/// Calls `work(i)` for every i below `count`, on as many threads as there are processors, in no order. Throws
/// what one of the calls threw, once all threads have ended.
template <class Work>
void for_each_parallel(std::size_t count, const Work& work) {
  std::atomic<std::size_t> next{0};
  const auto run = [&] {
    for (std::size_t i = next++; i < count; i = next++) work(i);
  };
  // A few entries are read sooner than a thread is started.
  constexpr std::size_t per_thread = 16;
  const std::size_t processors = std::max(1U, std::thread::hardware_concurrency());
  const std::size_t threads = std::min(processors, count / per_thread + 1);
  std::vector<std::future<void>> others;
  for (std::size_t i = 1; i < threads; ++i) others.push_back(std::async(std::launch::async, run));
  run();
  for (auto& other : others) other.get();
}

}  // namespace kiln::cli
