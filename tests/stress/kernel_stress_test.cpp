#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <map>
#include <mutex>
#include <thread>

#include "kernels/kernel_suite.hpp"

// All kernels from many threads at once, on an executor whose cache is so small that programs come and go all the
// time, while another process prunes the folder. `KILN_STRESS_SECONDS` is how long, for each API.
namespace kiln::tests {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int threads = 64;

std::chrono::seconds duration() {
  const char* asked = std::getenv("KILN_STRESS_SECONDS");
  return std::chrono::seconds(asked != nullptr ? std::max(std::atoi(asked), 1) : 2);
}

/// One call with what it should compute, all from a seed.
class Case {
 public:
  explicit Case(unsigned seed) : random_(seed) {}

  struct Outcome {
    Result<Tensor> got;
    Array expected;
  };
  Outcome run(const Runner& on, const std::shared_ptr<Device>& device) {
    const auto tensor = [&device](const Array& array) {
      return Tensor::from(device, array.shape, array.values).value();
    };
    switch (between(0, 7)) {
      case 0: {
        const Array x = noise({between(1, 2), between(1, 4), between(5, 12), between(5, 12)});
        const Array w = noise({between(1, 9), x.shape[1], 3, 3});
        return {conv2d(on, tensor(x), tensor(w), {.padding = {1, 1}}),
                reference::conv2d(x, w, std::nullopt, {.padding = {1, 1}})};
      }
      case 1: {
        const int k = between(1, 70);
        const Array a = noise({between(1, 50), k});
        const Array b = noise({k, between(1, 50)});
        return {gemm(on, tensor(a), tensor(b)), reference::gemm(a, b, std::nullopt, {})};
      }
      case 2: {
        const Array x = noise({between(1, 9), between(1, 300)});
        return {softmax(on, tensor(x)), reference::softmax(x, std::nullopt)};
      }
      case 3: {
        const int k = between(1, 40);
        const Array weights = noise({1, between(1, 3), between(1, 30), k});
        const Array values = noise({1, weights.shape[1], k, between(1, 20)});
        return {weighted_matmul(on, tensor(weights), tensor(values)), reference::weighted_matmul(weights, values)};
      }
      case 4: {
        const int d = 4 * between(1, 8);
        const Array q = noise({1, between(1, 2), between(1, 30), d});
        const Array k = noise({1, q.shape[1], between(1, 40), d});
        const Array v = noise(k.shape);
        const bool causal = between(0, 1) == 1;
        return {flash_attention(on, tensor(q), tensor(k), tensor(v), {.causal = causal}),
                reference::flash_attention(q, k, v, causal, std::nullopt)};
      }
      case 5: {
        // Each call on what the one before will have computed.
        const Array x = noise({between(1, 5), between(1, 200)});
        const auto first = softmax(on, tensor(x));
        if (!first) return {first, x};
        return {reduce(on, *first, Reduction::max),
                reference::reduce(reference::softmax(x, std::nullopt), Reduction::max)};
      }
      case 6: {
        const Array x = noise({between(1, 3000)});
        return {copy(on, tensor(x)), x};
      }
      default: {
        const Array x = noise({between(1, 5), between(1, 600)});
        return {scan(on, tensor(x)), reference::scan(x, false)};
      }
    }
  }

 private:
  int between(int low, int high) { return std::uniform_int_distribution(low, high)(random_); }
  Array noise(Shape shape) {
    std::uniform_real_distribution<float> value(-1, 1);
    Array array{shape, std::vector<float>(static_cast<std::size_t>(count_of(shape)))};
    for (float& x : array.values) x = value(random_);
    return array;
  }

  std::mt19937 random_;
};

class KernelStress : public KernelSuite {};

TEST_P(KernelStress, SixtyFourThreadsComputeWhatOneDoes) {
  const char* pruned = std::getenv(contract::handed_down);
  CacheOptions small;
  small.directory = pruned != nullptr ? pruned : (folder_.path() / "cache").string();
  small.max_programs = 3;
  small.log = book_.log();
  const auto stop = small.directory / "stop";
  if (pruned != nullptr) {
    // This is the other process.
    Cache cache(device_, small);
    while (!std::filesystem::exists(stop)) static_cast<void>(cache.prune({.max_bytes = 0}));
    return;
  }
  std::filesystem::create_directories(small.directory);
  std::thread pruning([&] { EXPECT_EQ(contract::run_this_test_elsewhere(small.directory), 0); });

  std::mutex mutex;
  std::map<unsigned, std::vector<float>> results;
  std::atomic<int> wrong = 0;
  {
    Cache cache(device_, small);
    auto executor = Executor::create(device_, cache, {.log = book_.log()}).value();
    std::atomic<unsigned> seeds = 0;
    const auto end = Clock::now() + duration();
    std::vector<std::thread> workers;
    for (int t = 0; t < threads; ++t)
      workers.emplace_back([&] {
        while (Clock::now() < end && wrong == 0) {
          const unsigned seed = seeds++;
          const auto outcome = Case(seed).run(*executor, device_);
          if (const auto same = matches(outcome.got, outcome.expected); !same) {
            ++wrong;
            ADD_FAILURE() << "seed " << seed << ": " << same.message();
            return;
          }
          auto values = outcome.got->read();
          const std::lock_guard lock(mutex);
          if (results.size() < 200) results.emplace(seed, std::move(values).value());
        }
      });
    for (std::thread& worker : workers) worker.join();
    executor->drain();
    const ExecutorStats stats = executor->stats();
    EXPECT_EQ(stats.submitted, stats.succeeded + stats.failed);
    EXPECT_EQ(stats.failed, 0U);
    EXPECT_EQ(stats.unfinished, 0U);
    RecordProperty("cases", static_cast<int>(seeds));
    EXPECT_GE(seeds, static_cast<unsigned>(threads));
  }
  std::ofstream(stop) << "now\n";
  pruning.join();

  // The same seeds again, by one thread that waits for each.
  for (const auto& [seed, values] : results) {
    const auto alone = Case(seed).run(*cache_, device_).got.value().read().value();
    EXPECT_EQ(std::memcmp(alone.data(), values.data(), values.size() * sizeof(float)), 0) << "seed " << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(Apis, KernelStress, contract::every_api(), contract::name_of);

}  // namespace
}  // namespace kiln::tests
