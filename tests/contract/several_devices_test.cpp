#include <atomic>
#include <cstdlib>
#include <thread>
#include <vector>

#include "contract/contract.hpp"
#include "contract/kernels.hpp"

// Several devices in one process, each with a cache of its own.
namespace kiln::contract {
namespace {

class SeveralDevices : public Contract {
 protected:
  /// PoCL has one device for each of its drivers. It reads the variable when it is loaded.
  static void ask_for_two() { setenv("POCL_DEVICES", "pthread basic", 1); }
  void SetUp() override {}

  void use_both() {
    std::vector<std::shared_ptr<Device>> devices;
    for (const char* name : {"opencl:0", "opencl:1"}) {
      auto opened = open_device(name, book_.log());
      if (!opened) GTEST_SKIP() << opened.error().message();
      devices.push_back(*opened);
    }
    std::vector<std::unique_ptr<Cache>> caches;
    for (const auto& device : devices) caches.push_back(std::make_unique<Cache>(device, options()));

    constexpr int programs = 4;
    std::atomic<int> wrong = 0;
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 8; ++thread)
      threads.emplace_back([&, thread] {
        for (int round = 0; round < 2 * programs; ++round) {
          const auto which = static_cast<std::size_t>(thread + round) % 2;
          Device& device = *devices[which];
          const int factor = 2 + (thread + round / 2) % programs;
          const Program program = caches[which]->get(scale(factor).request(device).value()).value();
          if (!scales(device, program.module(), factor, 1)) ++wrong;
        }
      });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(wrong, 0);
    // Devices of one identity share a folder, and find what the other compiled.
    const bool same = devices[0]->identity() == devices[1]->identity();
    EXPECT_EQ(caches[0]->folder() == caches[1]->folder(), same);
    EXPECT_EQ(caches[0]->stats().compiles + caches[1]->stats().compiles,
              static_cast<std::uint64_t>(same ? programs : 2 * programs));

    const Program of_first = caches[0]->get(scale(2).request(*devices[0]).value()).value();
    const Program of_second = caches[1]->get(scale(2).request(*devices[1]).value()).value();
    const auto on_first = devices[0]->allocate(4000).value();
    const auto too = devices[0]->allocate(4000).value();
    const Launch launch = scale(2).launch({16, 1, 1}, {on_first.get(), too.get()}, {1000, 0.0F}).value();
    EXPECT_EQ(devices[1]->launch(of_first.module(), launch).error().code(), ErrorCode::invalid_request);
    EXPECT_EQ(devices[1]->launch(of_second.module(), launch).error().code(), ErrorCode::invalid_request);
    EXPECT_TRUE(devices[0]->launch(of_first.module(), launch));
  }
};

TEST_P(SeveralDevices, HaveCachesAndMemoryOfTheirOwn) {
  if (std::getenv(handed_down) == nullptr) {
    EXPECT_EQ(run_this_test_elsewhere(folder_.path()), 0);
    return;
  }
  ask_for_two();
  use_both();
}

INSTANTIATE_TEST_SUITE_P(Apis, SeveralDevices, testing::Values("opencl"), name_of);

}  // namespace
}  // namespace kiln::contract
