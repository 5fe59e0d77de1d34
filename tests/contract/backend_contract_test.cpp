#include <array>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <random>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kiln/cache.hpp>
#include <kiln/cuda.hpp>
#include <kiln/hip.hpp>
#include <kiln/kernel.hpp>
#include <kiln/opencl.hpp>
#include <kiln/opengl.hpp>
#include <kiln/vulkan.hpp>

#include "contract/kernels.hpp"
#include "contract/own_objects.hpp"
#include "fakes/cache_fixture.hpp"

// What every backend promises, on every device of this machine that can be opened.
namespace kiln {
namespace {

using contract::gemm;
using contract::scale;

constexpr const char* handed_down = "KILN_CONTRACT_FOLDER";

/// The environment before any driver was there. The usual loader of OpenCL takes OCL_ICD_FILENAMES apart where it
/// lies, so that a process started later would see its first file alone.
const std::vector<std::string> environment_at_start = [] {
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) variables.emplace_back(*variable);
  return variables;
}();

/// Runs this test again in a process of its own, which finds `folder` in its environment. What it returned.
int run_this_test_elsewhere(const std::filesystem::path& folder) {
  const auto* test = testing::UnitTest::GetInstance()->current_test_info();
  std::string self = std::filesystem::read_symlink("/proc/self/exe");
  std::string filter = fmt::format("--gtest_filter={}.{}", test->test_suite_name(), test->name());
  std::string brief = "--gtest_brief=1";
  std::array<char*, 4> arguments = {self.data(), filter.data(), brief.data(), nullptr};
  std::vector<std::string> variables = environment_at_start;
  variables.push_back(fmt::format("{}={}", handed_down, folder.string()));
  std::vector<char*> environment;
  for (std::string& variable : variables) environment.push_back(variable.data());
  environment.push_back(nullptr);
  pid_t child = 0;
  if (posix_spawn(&child, self.c_str(), nullptr, nullptr, arguments.data(), environment.data()) != 0) return -1;
  int status = -1;
  waitpid(child, &status, 0);
  return status;
}

/// One device of each API, open until all tests are over: most drivers take long to start.
class RunningDrivers : public testing::Environment {
 public:
  void keep(const std::string& api) {
    if (!devices_.contains(api)) devices_.emplace(api, open_device(api).value());
  }
  void TearDown() override { devices_.clear(); }

 private:
  std::map<std::string, std::shared_ptr<Device>> devices_;
};
auto* const running_drivers = new RunningDrivers;
const auto* const registered = testing::AddGlobalTestEnvironment(running_drivers);

class BackendContract : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    auto opened = open_device(GetParam(), book_.log());
    if (!opened) {
      // What its first process could open, its second one must.
      ASSERT_EQ(std::getenv(handed_down), nullptr) << opened.error().message();
      GTEST_SKIP() << GetParam() << " was skipped: " << opened.error().message();
    }
    device_ = *opened;
    running_drivers->keep(GetParam());
  }

  CacheOptions options() const {
    CacheOptions options;
    options.directory = folder_.path() / "cache";
    options.log = book_.log();
    return options;
  }

  Request request(const Kernel& kernel) const { return kernel.request(*device_).value(); }

  /// Whether the module does what scale(factor) says, on memory of its own.
  static bool scales(Device& device, Module& module, int factor, float offset) {
    constexpr std::size_t count = 1000;
    std::vector<float> numbers(count);
    for (std::size_t i = 0; i < count; ++i) numbers[i] = static_cast<float>(i);
    const auto x = upload(device, numbers).value();
    const auto y = upload(device, std::vector<float>(count)).value();
    const Launch launch =
        scale(factor).launch({16, 1, 1}, {x.get(), y.get()}, {std::int32_t{count}, offset}).value();
    device.launch(module, launch).value();
    const auto results = download<float>(device, *y).value();
    for (std::size_t i = 0; i < count; ++i)
      if (results[i] != static_cast<float>(i) * static_cast<float>(factor) + offset) return false;
    return true;
  }

  fakes::TemporaryFolder folder_;
  mutable fakes::LogBook book_;
  std::shared_ptr<Device> device_;
};

TEST_P(BackendContract, KnowsWhatItIsAndSaysTheSameEveryTime) {
  const DeviceInfo& info = device_->info();
  EXPECT_EQ(info.identity.api, GetParam());
  EXPECT_FALSE(info.identity.vendor.empty());
  EXPECT_FALSE(info.identity.device.empty());
  EXPECT_FALSE(info.identity.driver.empty());
  EXPECT_FALSE(info.identity.formats.empty());
  EXPECT_GE(info.limits.max_group_items, 128U);
  EXPECT_GE(info.limits.shared_bytes, 16384U);
  EXPECT_EQ(open_device(GetParam()).value()->identity(), info.identity);
  EXPECT_EQ(open_device(info.name).value()->identity(), info.identity);
}

TEST_P(BackendContract, CompilesLaunchesAndReadsBack) {
  const Compiled compiled = device_->compile(request(scale(3))).value();
  EXPECT_TRUE(scales(*device_, *compiled.module, 3, 0.5F));
}

TEST_P(BackendContract, ABinaryLoadsToTheSameProgram) {
  const Compiled compiled = device_->compile(request(scale(3))).value();
  ASSERT_TRUE(compiled.binary);
  const auto loaded = device_->load(*compiled.binary).value();
  EXPECT_TRUE(scales(*device_, *loaded, 3, 1));
}

TEST_P(BackendContract, AProgramComesFromDiskInAnotherProcessAndComputesTheSame) {
  CacheOptions options = this->options();
  if (const char* folder = std::getenv(handed_down); folder != nullptr) {
    options.directory = folder;
    Cache cache(device_, options);
    const Program program = cache.get(request(scale(5))).value();
    ASSERT_EQ(program.origin(), Origin::disk) << cache.folder();
    ASSERT_TRUE(scales(*device_, program.module(), 5, 0.25F));
    std::ofstream(options.directory / "computed");
    return;
  }
  {
    Cache cache(device_, options);
    const Program program = cache.get(request(scale(5))).value();
    EXPECT_EQ(program.origin(), Origin::compiled);
    EXPECT_TRUE(scales(*device_, program.module(), 5, 0.25F));
  }
  EXPECT_EQ(run_this_test_elsewhere(options.directory), 0);
  EXPECT_TRUE(std::filesystem::exists(options.directory / "computed"));
}

TEST_P(BackendContract, RefusesBinariesOfAnotherFormatAndDamagedOnes) {
  const Binary good = device_->compile(request(scale(3))).value().binary.value();
  Binary other = good;
  other.format += 1000;
  EXPECT_EQ(device_->load(other).error().code(), ErrorCode::load_failed);
  Binary empty = good;
  empty.bytes.clear();
  EXPECT_EQ(device_->load(empty).error().code(), ErrorCode::load_failed);
  Binary zeros = good;
  std::ranges::fill(zeros.bytes, std::byte{0});
  EXPECT_EQ(device_->load(zeros).error().code(), ErrorCode::load_failed);
  for (const std::size_t divisor : {2U, 3U, 10U, 100U}) {
    Binary part = good;
    part.bytes.resize(good.bytes.size() / divisor);
    EXPECT_EQ(device_->load(part).error().code(), ErrorCode::load_failed) << "a part of 1/" << divisor;
  }
  EXPECT_TRUE(scales(*device_, **device_->load(good), 3, 1)) << "a refusal leaves the device as it was";
}

TEST_P(BackendContract, ACompileErrorPointsAtTheLineOfTheKernelsOwnSource) {
  Kernel broken = scale(3);
  broken.name = "broken";
  broken.source = "KERNEL {\n  int i = global_id_x;\n  y[i] = nonsense + x[i];\n}\n";
  const auto result = device_->compile(request(broken));
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code(), ErrorCode::compile_failed);
  EXPECT_NE(result.error().message().find("broken"), std::string::npos) << result.error().describe();
  EXPECT_NE(result.error().message().find("line 3"), std::string::npos) << result.error().describe();
  EXPECT_NE(result.error().log().find("nonsense"), std::string::npos) << result.error().log();
}

TEST_P(BackendContract, AnIncludeThatIsSkippedShiftsNoLines) {
  const Kernel broken{.name = "broken",
                      .source = "#if KILN_NOWHERE\n#include <cuda_fp16.h>\n#endif\nKERNEL {\n  nonsense;\n}\n"};
  const auto result = device_->compile(request(broken));
  ASSERT_FALSE(result);
  EXPECT_NE(result.error().message().find("line 5"), std::string::npos) << result.error().describe();
}

TEST_P(BackendContract, AnErrorInWhatIsDeclaredForAKernelNamesTheDeclaration) {
  Kernel broken = scale(3);
  broken.name = "broken";
  broken.shared = {{"tile", Type::f32, {"TILES"}}};
  const auto result = device_->compile(request(broken));
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code(), ErrorCode::compile_failed);
  EXPECT_TRUE(result.error().message().starts_with("broken does not compile, in what Kiln declares for it, \""))
      << result.error().describe();
  EXPECT_NE(result.error().message().find("float tile[TILES];\": "), std::string::npos)
      << result.error().describe();
}

TEST_P(BackendContract, RefusesASourceInAnotherLanguage) {
  const Language other = device_->info().language == Language::glsl ? Language::cuda : Language::glsl;
  const auto result = device_->compile(scale(3).request(other).value());
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code(), ErrorCode::invalid_request);
}

TEST_P(BackendContract, SixteenThreadsAtOnceComputeWhatOneDoes) {
  const Compiled compiled = device_->compile(request(scale(3))).value();
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 16; ++t)
    threads.emplace_back([&, t] {
      for (int round = 0; round < 10; ++round)
        if (!scales(*device_, *compiled.module, 3, static_cast<float>(16 * round + t))) ++wrong;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST_P(BackendContract, ThreadsCompileLoadAndEvictTogether) {
  CacheOptions options = this->options();
  options.max_programs = 3;
  Cache cache(device_, options);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 6; ++t)
    threads.emplace_back([&, t] {
      for (int round = 0; round < 5; ++round) {
        const int factor = 1 + (t + round) % 5;
        const auto program = cache.get(request(scale(factor)));
        if (!program || !scales(*device_, program->module(), factor, static_cast<float>(t))) ++wrong;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(cache.stats().compiles, 5U);
}

TEST_P(BackendContract, TooMuchMemoryIsAnErrorAndNotACrash) {
  const auto result = device_->allocate(std::size_t{1} << 60);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code(), ErrorCode::out_of_memory) << result.error().message();
  EXPECT_TRUE(device_->allocate(1 << 20));
  EXPECT_TRUE(device_->allocate(0));
}

TEST_P(BackendContract, ReadsAndWritesThatDoNotFitAreRefused) {
  const auto buffer = device_->allocate(16).value();
  std::vector<std::byte> bytes(8);
  EXPECT_TRUE(device_->write(*buffer, bytes, 8));
  EXPECT_EQ(device_->write(*buffer, bytes, 9).error().code(), ErrorCode::invalid_request);
  EXPECT_EQ(device_->read(*buffer, bytes, 17).error().code(), ErrorCode::invalid_request);
  EXPECT_TRUE(device_->read(*buffer, std::span<std::byte>(), 16));
}

TEST_P(BackendContract, ArgumentsOfTheWrongNumberOrSizeAreRefused) {
  const Compiled compiled = device_->compile(request(scale(3))).value();
  const auto x = device_->allocate(4000).value();
  const auto y = device_->allocate(4000).value();
  const Launch good = scale(3).launch({16, 1, 1}, {x.get(), y.get()}, {1000, 1.0F}).value();
  Launch few = good;
  few.buffers.pop_back();
  EXPECT_EQ(device_->launch(*compiled.module, few).error().code(), ErrorCode::invalid_request);
  Launch missing = good;
  missing.buffers[1] = nullptr;
  EXPECT_EQ(device_->launch(*compiled.module, missing).error().code(), ErrorCode::invalid_request);
  Launch none = good;
  none.parameters.clear();
  EXPECT_EQ(device_->launch(*compiled.module, none).error().code(), ErrorCode::invalid_request);
  Launch wide = good;
  wide.groups = {1, 1, 0xffffffff};
  if (device_->info().limits.max_groups[2] < wide.groups[2]) {
    EXPECT_EQ(device_->launch(*compiled.module, wide).error().code(), ErrorCode::invalid_request);
  }
  EXPECT_TRUE(device_->launch(*compiled.module, good));
}

TEST_P(BackendContract, MoreSharedMemoryThanThereIsIsAnError) {
  Kernel greedy = scale(3);
  greedy.name = "greedy";
  greedy.shared = {{"cells", Type::f32, {"64", "1024", "1024"}}};
  greedy.source = R"(KERNEL {
  int i = global_id_x;
  for (int j = local_index; j < 64; j += GROUP_X) cells[j][j][j] = x[i + j];
  group_barrier();
  y[i] = cells[i & 63][i & 63][i & 63] * FACTOR + offset;
})";
  const auto compiled = device_->compile(request(greedy));
  ASSERT_FALSE(compiled);
  EXPECT_EQ(compiled.error().code(), ErrorCode::unsupported) << compiled.error().describe();
  EXPECT_NE(compiled.error().message().find("greedy"), std::string::npos) << compiled.error().message();
}

TEST_P(BackendContract, HandlesOutliveCacheAndDevice) {
  Program program;
  std::unique_ptr<Buffer> buffer;
  {
    Cache cache(device_, options());
    program = cache.get(request(scale(2))).value();
    buffer = device_->allocate(16).value();
    device_.reset();
  }
  EXPECT_EQ(program.name(), "scale_2");
  std::thread([&] {
    program = {};
    buffer.reset();
  }).join();
}

TEST_P(BackendContract, AdoptsTheCallersOwnObjectsAndLeavesThemAsTheyWere) {
  const auto own = contract::own_objects(device_->info());
  EXPECT_TRUE(own->work());
  const Binary binary = device_->compile(request(scale(4))).value().binary.value();
  {
    auto adopted = own->adopt(book_.log()).value();
    EXPECT_EQ(adopted->info().name, GetParam() + ":adopted");
    EXPECT_EQ(adopted->identity(), device_->identity());
    // The caller's objects stand without those of the device that Kiln opened.
    device_.reset();
    const Compiled compiled = adopted->compile(scale(3).request(*adopted).value()).value();
    EXPECT_TRUE(scales(*adopted, *compiled.module, 3, 1));
    const auto loaded = adopted->load(binary).value();
    EXPECT_TRUE(scales(*adopted, *loaded, 4, 1));
    const auto buffer = upload(*adopted, std::vector<float>{1, 2}).value();
    EXPECT_TRUE(own->work()) << "beside Kiln";
    adopted.reset();
    EXPECT_TRUE(own->work()) << "beside programs and buffers that outlive their device";
  }
  EXPECT_TRUE(own->work()) << "after Kiln";
}

TEST_P(BackendContract, GemmComputesWhatTheCpuDoes) {
  constexpr int m = 70;
  constexpr int n = 45;
  constexpr int k = 51;
  std::mt19937 random(7);
  std::uniform_real_distribution<float> value(-1, 1);
  std::vector<float> a(m * k);
  std::vector<float> b(k * n);
  for (float& x : a) x = value(random);
  for (float& x : b) x = value(random);
  const auto da = upload(*device_, a).value();
  const auto db = upload(*device_, b).value();
  const auto dc = upload(*device_, std::vector<float>(m * n)).value();
  const Compiled compiled = device_->compile(request(gemm())).value();
  const Launch launch = gemm().launch({2, 3, 1}, {da.get(), db.get(), dc.get()}, {m, n, k}).value();
  device_->launch(*compiled.module, launch).value();
  const auto c = download<float>(*device_, *dc).value();
  for (int row = 0; row < m; ++row)
    for (int column = 0; column < n; ++column) {
      double sum = 0;
      double size = 0;
      for (int i = 0; i < k; ++i) {
        const double term =
            double{a[static_cast<std::size_t>(row * k + i)]} * double{b[static_cast<std::size_t>(i * n + column)]};
        sum += term;
        size += std::abs(term);
      }
      ASSERT_NEAR(c[static_cast<std::size_t>(row * n + column)], sum, 1e-4 * std::abs(sum) + 1e-6 * size);
    }
}

TEST_P(BackendContract, EveryWordOfTheDialectMeansTheSame) {
  const Kernel words = contract::words();
  // 2, 0.5, 3 and -4 as halves.
  const std::vector<std::uint16_t> halves = {0x4000, 0x3800, 0x4200, 0xc400};
  std::vector<std::uint32_t> counts = {0, 1000, 0, 0, 0xffffffff, 0, 7, 5};
  const auto quads = upload(*device_, std::vector<float>{1, 2, 3, 4}).value();
  const auto in = upload(*device_, halves).value();
  const auto out = upload(*device_, std::vector<std::uint16_t>(2)).value();
  const auto unsigned_counts = upload(*device_, counts).value();
  const auto signed_counts = upload(*device_, std::vector<std::int32_t>{10}).value();
  const auto values = upload(*device_, std::vector<float>(21)).value();
  const Compiled compiled = device_->compile(request(words)).value();
  const Launch launch =
      words
          .launch({2, 1, 1},
                  {quads.get(), in.get(), out.get(), unsigned_counts.get(), signed_counts.get(), values.get()},
                  {1.5F, std::uint32_t{0xff0f}, std::int32_t{-7}})
          .value();
  device_->launch(*compiled.module, launch).value();
  EXPECT_EQ(download<std::uint32_t>(*device_, *unsigned_counts).value(),
            (std::vector<std::uint32_t>{64, 0, 3, 0xff, 0xffffff00, 0, 9, 0xff0f}));
  EXPECT_EQ(download<std::int32_t>(*device_, *signed_counts).value(), std::vector<std::int32_t>{-54});
  EXPECT_EQ(download<std::uint16_t>(*device_, *out).value(), (std::vector<std::uint16_t>{0x3e00, 0xbe00}));
  const std::vector<float> expected = {3, 0,     24, 30, -1,  0.5F, 32, 31, -2, 12, -1.5F,
                                       6, 4.25F, 10, 1,  211, 2,    5,  13, 0,  1};
  const auto got = download<float>(*device_, *values).value();
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-5) << "value " << i;
}

TEST_P(BackendContract, RefusesABinaryWithAByteChanged) {
  if (GetParam() != "vulkan" && GetParam() != "opencl")
    GTEST_SKIP() << GetParam()
                 << "'s binaries carry no digest: the driver checks them, or the store they come from";
  const Binary good = device_->compile(request(scale(3))).value().binary.value();
  for (std::size_t at = 0; at < good.bytes.size(); at += 1 + good.bytes.size() / 1009) {
    Binary changed = good;
    changed.bytes[at] ^= std::byte{0x10};
    const auto loaded = device_->load(changed);
    ASSERT_FALSE(loaded) << "byte " << at;
    EXPECT_EQ(loaded.error().code(), ErrorCode::load_failed);
  }
  EXPECT_TRUE(scales(*device_, **device_->load(good), 3, 1));
}

TEST_P(BackendContract, ArgumentsOfTheWrongKindAreRefused) {
  if (GetParam() == "cuda" || GetParam() == "hip")
    GTEST_SKIP() << GetParam() << "'s drivers tell how long an argument is, and not what it is";
  const Kernel copy{.name = "copy",
                    .buffers = {{"x", Type::f32, Access::read}, {"y", Type::f32, Access::write}},
                    .source = "KERNEL { y[global_id_x] = x[global_id_x]; }\n"};
  const auto x = device_->allocate(4000).value();
  const auto y = device_->allocate(4000).value();
  Launch swapped = copy.launch({1, 1, 1}, {x.get(), y.get()}, {}).value();
  swapped.buffers.pop_back();
  swapped.parameters.resize(8);
  Launch many = scale(3).launch({1, 1, 1}, {x.get(), y.get()}, {1000, 1.0F}).value();
  many.buffers.push_back(x.get());
  many.parameters.clear();
  for (const auto& [kernel, launch] : {std::pair(copy, swapped), std::pair(scale(3), many)}) {
    const Compiled compiled = device_->compile(request(kernel)).value();
    const auto loaded = device_->load(compiled.binary.value()).value();
    for (Module* module : {compiled.module.get(), loaded.get()}) {
      const auto result = device_->launch(*module, launch);
      ASSERT_FALSE(result) << kernel.name;
      EXPECT_EQ(result.error().code(), ErrorCode::invalid_request) << result.error().message();
    }
  }
}

TEST_P(BackendContract, WhatBelongsToAnotherDeviceIsNamed) {
  const auto other = open_device(GetParam()).value();
  const auto contains = [](const Error& error, const std::string& text) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_request);
    EXPECT_NE(error.message().find(text), std::string::npos) << error.message();
  };
  const Compiled compiled = device_->compile(request(scale(3))).value();
  const auto mine = device_->allocate(4000).value();
  const auto foreign = other->allocate(4000).value();
  const std::string& name = device_->info().name;
  const Launch launch = scale(3).launch({1, 1, 1}, {mine.get(), foreign.get()}, {10, 1.0F}).value();
  contains(device_->launch(*compiled.module, launch).error(),
           "scale_3: argument 1 belongs to another device; allocate it on " + name);
  contains(other->launch(*compiled.module, launch).error(), "scale_3 belongs to another device; compile or load");
  std::vector<std::byte> bytes(4);
  contains(device_->read(*foreign, bytes).error(), "the buffer belongs to another device; allocate it on " + name);
  contains(device_->write(*foreign, bytes).error(), "the buffer belongs to another device; allocate it on " + name);
}

TEST_P(BackendContract, TheLastOfAnOddNumberOfHalvesIsReadLikeTheOthers) {
  const Kernel kernel{.name = "halves",
                      .buffers = {{"a", Type::f16, Access::read}, {"values", Type::f32, Access::write}},
                      .group_size = {1, 1, 1},
                      .source = "KERNEL { for (int i = 0; i < 3; ++i) values[i] = load_half(a, i); }\n"};
  const Compiled compiled = device_->compile(request(kernel)).value();
  // 2, 0.5 and 3.
  const auto a = upload(*device_, std::vector<std::uint16_t>{0x4000, 0x3800, 0x4200}).value();
  EXPECT_EQ(a->size(), 6U);
  const auto values = upload(*device_, std::vector<float>(3)).value();
  device_->launch(*compiled.module, kernel.launch({1, 1, 1}, {a.get(), values.get()}, {}).value()).value();
  EXPECT_EQ(download<float>(*device_, *values).value(), (std::vector<float>{2, 0.5F, 3}));
}

TEST_P(BackendContract, ABufferHasANativeHandleInItsOwnApiAlone) {
  const auto buffer = device_->allocate(64).value();
  const std::string& api = GetParam();
  EXPECT_EQ(opengl::memory(*buffer) != 0, api == "opengl");
  EXPECT_EQ(vulkan::memory(*buffer) != nullptr, api == "vulkan");
  EXPECT_EQ(opencl::memory(*buffer) != nullptr, api == "opencl");
  EXPECT_EQ(cuda::memory(*buffer) != 0, api == "cuda");
  EXPECT_EQ(hip::memory(*buffer) != nullptr, api == "hip");
}

TEST_P(BackendContract, NativeAtomicsStandBesideThoseOfTheDialect) {
  const Kernel kernel = contract::native_atomics();
  const auto counts = upload(*device_, std::vector<std::uint32_t>(2)).value();
  const Compiled compiled = device_->compile(request(kernel)).value();
  device_->launch(*compiled.module, kernel.launch({3, 1, 1}, {counts.get()}, {}).value()).value();
  EXPECT_EQ(download<std::uint32_t>(*device_, *counts).value(), (std::vector<std::uint32_t>{192, 192}));
}

TEST_P(BackendContract, AGroupSeesInABufferWhatItsOthersWroteBeforeTheBarrier) {
  const Kernel turn{.name = "turn",
                    .buffers = {{"values", Type::u32, Access::read_write}},
                    .group_size = {128, 1, 1},
                    .source = R"(KERNEL {
  for (int round = 0; round < 64; ++round) {
    uint next = values[group_id_x * GROUP_X + (local_id_x + 1) % GROUP_X];
    group_barrier();
    values[global_id_x] = next;
    group_barrier();
  }
}
)"};
  std::vector<std::uint32_t> values(1024);
  for (std::uint32_t i = 0; i < values.size(); ++i) values[i] = i;
  const auto buffer = upload(*device_, values).value();
  const Compiled compiled = device_->compile(request(turn)).value();
  device_->launch(*compiled.module, turn.launch({8, 1, 1}, {buffer.get()}, {}).value()).value();
  for (std::uint32_t i = 0; i < values.size(); ++i) values[i] = i / 128 * 128 + (i + 64) % 128;
  EXPECT_EQ(download<std::uint32_t>(*device_, *buffer).value(), values);
}

TEST_P(BackendContract, KernelsMayHaveAnyName) {
  for (const char* name : {"scalars", "given", "from_half", "new", "float4", "main", "3x3 \"conv\""}) {
    Kernel kernel = scale(3);
    kernel.name = name;
    const auto compiled = device_->compile(request(kernel));
    EXPECT_TRUE(compiled) << compiled.error().describe();
  }
}

INSTANTIATE_TEST_SUITE_P(Apis, BackendContract, testing::Values("opengl", "vulkan", "opencl", "cuda", "hip"),
                         [](const auto& parameter) { return parameter.param; });

}  // namespace
}  // namespace kiln
