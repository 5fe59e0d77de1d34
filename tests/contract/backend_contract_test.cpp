#include <algorithm>
#include <bit>
#include <fstream>
#include <thread>

#include <kiln/cuda.hpp>
#include <kiln/hip.hpp>
#include <kiln/opencl.hpp>
#include <kiln/opengl.hpp>
#include <kiln/vulkan.hpp>

#include "contract/contract.hpp"
#include "contract/kernels.hpp"
#include "contract/own_objects.hpp"

// What every backend promises, on every device of this machine that can be opened.
namespace kiln::contract {
namespace {

class BackendContract : public Contract {};

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

TEST_P(BackendContract, TellsTheTraitsOfTheDeviceTheSameInListings) {
  const DeviceTraits& traits = device_->info().traits;
  EXPECT_FALSE(traits.vendor.empty());
  const std::uint32_t width = traits.subgroup_width;
  EXPECT_TRUE(width == 0 || (std::has_single_bit(width) && width <= 128)) << width;
  EXPECT_LE(traits.compute_units, 4096U);
  EXPECT_TRUE(GetParam() != "opencl" || traits.compute_units > 0) << "OpenCL always tells";
  const auto listed = list_devices();
  const auto same = std::ranges::find(listed, device_->info().name, &DeviceInfo::name);
  ASSERT_NE(same, listed.end());
  EXPECT_EQ(same->traits, traits);
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

TEST_P(BackendContract, RefusesASourceInAnotherLanguage) {
  const Language other = device_->info().language == Language::glsl ? Language::cuda : Language::glsl;
  const auto result = device_->compile(scale(3).request(other).value());
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code(), ErrorCode::invalid_request);
}

TEST_P(BackendContract, RefusesAnInvalidRequestInAnyLanguage) {
  for (const Language other : {device_->info().language, Language::spirv, Language::ptx, Language::cubin,
                               Language::fatbin, Language::code_object}) {
    const Request request({.name = "empty", .source = "", .language = other});
    const auto result = device_->compile(request);
    ASSERT_FALSE(result) << to_string(other);
    EXPECT_EQ(result.error().message(), request.error()->message());
  }
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
  few.arguments.erase(few.arguments.begin() + 1);
  EXPECT_EQ(device_->launch(*compiled.module, few).error().code(), ErrorCode::invalid_request);
  Launch missing = good;
  missing.arguments[1] = static_cast<const Buffer*>(nullptr);
  EXPECT_EQ(device_->launch(*compiled.module, missing).error().code(), ErrorCode::invalid_request);
  Launch none = good;
  none.arguments.pop_back();
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
  open_own_device();
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
  open_own_device();
  const auto own = own_objects(device_->info());
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
  swapped.arguments.back() = 1.0;
  Launch many = scale(3).launch({1, 1, 1}, {x.get(), y.get()}, {1000, 1.0F}).value();
  many.arguments.back() = x;
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
  const Error error = device_->launch(*compiled.module, launch).error();
  EXPECT_TRUE(error.message().starts_with("scale_3: ")) << error.message();
  contains(error, " belongs to another device; allocate it on " + name);
  contains(other->launch(*compiled.module, launch).error(), "scale_3 belongs to another device; compile or load");
  std::vector<std::byte> bytes(4);
  contains(device_->read(*foreign, bytes).error(), "the buffer belongs to another device; allocate it on " + name);
  contains(device_->write(*foreign, bytes).error(), "the buffer belongs to another device; allocate it on " + name);
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

INSTANTIATE_TEST_SUITE_P(Apis, BackendContract, every_api(), name_of);

}  // namespace
}  // namespace kiln::contract
