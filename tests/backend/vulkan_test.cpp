#include <array>
#include <atomic>
#include <cstdlib>
#include <thread>

#include <unistd.h>

#include <fmt/format.h>

#include "backend/sections.hpp"
#include "backend/vulkan/device.hpp"
#include "backend/vulkan/spirv_program.hpp"
#include "backend/vulkan_fixture.hpp"
#include "backend/vulkan_modules.hpp"

namespace kiln {
namespace {

using fakes::vulkan_program;
using fakes::vulkan_scale;

class VulkanDevice : public fakes::VulkanTest {
 protected:
  Error compile_error(Request request) {
    auto result = device_->compile(request);
    EXPECT_FALSE(result);
    return result ? Error(ErrorCode::io, "compiled") : std::move(result).error();
  }
  Error compile_error(std::string source) {
    return compile_error(Request({.name = "conv", .source = std::move(source), .language = Language::vulkan_glsl}));
  }
};

std::vector<std::byte> bytes_of(const auto& value) {
  const auto bytes = std::as_bytes(std::span(&value, 1));
  return {bytes.begin(), bytes.end()};
}

TEST_F(VulkanDevice, KnowsWhatItIs) {
  const Identity& identity = device_->identity();
  EXPECT_EQ(identity.api, "vulkan");
  EXPECT_FALSE(identity.vendor.empty());
  EXPECT_FALSE(identity.device.empty());
  EXPECT_NE(identity.driver.find("cache "), std::string::npos) << identity.driver;
  EXPECT_TRUE(identity.compiler.starts_with("shaderc ")) << identity.compiler;
  EXPECT_NE(identity.compiler.find_first_of("0123456789"), std::string::npos) << identity.compiler;
  EXPECT_EQ(identity.formats, std::vector<std::uint32_t>{3});
  EXPECT_EQ(open_device("vulkan").value()->identity(), identity);
  EXPECT_EQ(device_->info().language, Language::vulkan_glsl);
  EXPECT_GE(device_->info().limits.shared_bytes, 16384U);
}

TEST_F(VulkanDevice, IsListedAsItOpens) {
  const auto listed = vulkan::list_vulkan_devices(book_.log());
  ASSERT_FALSE(listed.empty());
  EXPECT_EQ(listed[0].name, "vulkan:0");
  EXPECT_EQ(listed[0].identity, device_->identity());
  EXPECT_TRUE(listed[0].problem.empty()) << listed[0].problem;
  const auto none = open_device("vulkan:99");
  ASSERT_FALSE(none);
  EXPECT_NE(none.error().message().find("there is no vulkan:99"), std::string::npos) << none.error().message();
}

/// A program for devices that are not known yet.
Binary portable(const Request& request) {
  return vulkan::compile_portable(*vulkan::Shaderc::find().value(), request).value();
}

TEST_F(VulkanDevice, AcceptsPortableProgramsAfterItsOwn) {
  const Identity portable = vulkan::portable_identity("");
  EXPECT_GT(device_->accepts(portable), 0U);
  EXPECT_GT(device_->accepts(device_->identity()), device_->accepts(portable));
  Identity other = device_->identity();
  other.driver += " of tomorrow";
  EXPECT_EQ(device_->accepts(other), 0U);
}

TEST_F(VulkanDevice, MakesABinaryOfItsOwnFromAPortableProgram) {
  const Identity target = vulkan::portable_identity("");
  const Compiled adapted = device_->adapt(target, portable(vulkan_scale(3))).value();
  EXPECT_TRUE(scales(*device_, *adapted.module, 3, 0.5F));
  ASSERT_TRUE(adapted.binary);
  const auto loaded = device_->load(*adapted.binary).value();
  EXPECT_TRUE(scales(*device_, *loaded, 3, 1));
  EXPECT_EQ(device_->load(portable(vulkan_scale(3))).error().code(), ErrorCode::load_failed)
      << "which is not of its own";
  EXPECT_EQ(device_->adapt(target, *adapted.binary).error().code(), ErrorCode::load_failed);
}

TEST_F(VulkanDevice, RefusesPortableProgramsThatItDoesNotSupport) {
  const Identity target = vulkan::portable_identity("");
  const auto program = vulkan::portable_program(portable(vulkan_scale(3))).value();
  const auto adapt = [&](std::vector<std::uint32_t> words, std::vector<vulkan::ShaderEntry> entries) {
    const Binary binary{vulkan::portable_format,
                        backend::seal_sections({std::as_bytes(std::span(words)), vulkan::to_bytes(entries),
                                                backend::as_section(program.name)})};
    const auto adapted = device_->adapt(target, binary);
    return adapted ? "loaded" : std::string(to_string(adapted.error().code())) + ": " + adapted.error().message();
  };
  const auto& [words, entries] = program.module;
  EXPECT_EQ(adapt(words, entries), "loaded");
  auto later = words;
  later[1] = 0x00010700;
  EXPECT_TRUE(adapt(later, entries).starts_with("load_failed: scale_3 is in SPIR-V of a later version than 1."))
      << adapt(later, entries);
  // OpCapability Kernel, behind the header.
  auto capable = words;
  capable.insert(capable.begin() + 5, {2U << 16U | 17U, 6U});
  EXPECT_EQ(
      adapt(capable, entries),
      "load_failed: scale_3 declares the SPIR-V capability Kernel, which Kiln does not enable on this device");
  auto large = entries;
  large[0].interface.group_size = {1U << 20U, 1, 1};
  EXPECT_TRUE(adapt(words, large).starts_with("load_failed: scale_3 ")) << adapt(words, large);
  EXPECT_TRUE(adapt({}, entries).starts_with("load_failed: ")) << adapt({}, entries);
  EXPECT_TRUE(adapt(words, {}).starts_with("load_failed: ")) << adapt(words, {});
}

TEST_F(VulkanDevice, WithoutShadercRunsWhatIsCompiledAlready) {
  const auto& own = dynamic_cast<vulkan::VulkanDevice&>(*device_);
  DeviceInfo info = device_->info();
  info.identity.compiler = "";
  info.compiler_problem = "shaderc is missing";
  vulkan::VulkanDevice device(own.context(), nullptr, info);
  for (const Request& request :
       {vulkan_scale(3), Request({.name = "s", .source = "12345678", .language = Language::spirv})}) {
    const auto refused = device.compile(request);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code(), ErrorCode::unsupported);
    EXPECT_NE(refused.error().message().find("shaderc is missing"), std::string::npos) << refused.error().message();
  }
  const Compiled adapted = device.adapt(vulkan::portable_identity(""), portable(vulkan_scale(3))).value();
  EXPECT_TRUE(scales(device, *adapted.module, 3, 0.5F));
  EXPECT_TRUE(scales(device, *device.load(*adapted.binary).value(), 3, 1));
}

TEST_F(VulkanDevice, CompilesLaunchesAndReadsBack) {
  const Compiled compiled = device_->compile(vulkan_scale(3)).value();
  EXPECT_TRUE(scales(*device_, *compiled.module, 3, 0.5F));
  const auto& module = dynamic_cast<const vulkan::Module&>(*compiled.module);
  EXPECT_NE(module.pipeline(), nullptr);
  EXPECT_NE(module.layout(), nullptr);
  EXPECT_EQ(module.name(), "scale_3");
  EXPECT_GT(module.bytes(), 100U);
}

TEST_F(VulkanDevice, ABinaryLoadsToTheSameProgram) {
  const Compiled compiled = device_->compile(vulkan_scale(3)).value();
  ASSERT_TRUE(compiled.binary);
  const auto loaded = device_->load(*compiled.binary).value();
  EXPECT_TRUE(scales(*device_, *loaded, 3, 1));
  EXPECT_EQ(dynamic_cast<const vulkan::Module&>(*loaded).name(), "scale_3");
  EXPECT_EQ(loaded->bytes(), compiled.module->bytes());
}

TEST_F(VulkanDevice, RefusesABinaryOfAnotherFormatOrNoBinaryAtAll) {
  const Binary binary = device_->compile(vulkan_scale(3)).value().binary.value();
  Binary other = binary;
  other.format += 1;
  EXPECT_EQ(device_->load(other).error().code(), ErrorCode::load_failed);
  other = binary;
  other.bytes.assign(binary.bytes.size(), std::byte{0});
  EXPECT_EQ(device_->load(other).error().code(), ErrorCode::load_failed);
  for (std::size_t size = 0; size < binary.bytes.size(); size += 1 + size / 16) {
    other.bytes.assign(binary.bytes.begin(), binary.bytes.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_EQ(device_->load(other).error().code(), ErrorCode::load_failed) << size;
  }
}

TEST_F(VulkanDevice, RefusesAPipelineCacheWithAnyFieldOfItsHeaderChanged) {
  const Binary binary = device_->compile(vulkan_scale(3)).value().binary.value();
  const auto sections = backend::unseal_sections(binary.bytes, 4).value();
  const auto load_with = [&](std::vector<std::byte> cache) {
    return device_->load({binary.format, backend::seal_sections({sections[0], sections[1], cache, sections[3]})});
  };
  const std::vector<std::byte> cache(sections[2].begin(), sections[2].end());
  ASSERT_GE(cache.size(), 32U);
  ASSERT_TRUE(load_with(cache));
  for (const std::size_t field : {0, 4, 8, 12, 16, 31}) {
    auto changed = cache;
    changed[field] ^= std::byte{0x11};
    const auto result = load_with(changed);
    ASSERT_FALSE(result) << field;
    EXPECT_EQ(result.error().code(), ErrorCode::load_failed);
    EXPECT_NE(result.error().message().find("scale_3: the pipeline cache"), std::string::npos)
        << result.error().message();
  }
  EXPECT_FALSE(load_with({}));
  EXPECT_FALSE(load_with({cache.begin(), cache.begin() + 31}));
}

TEST_F(VulkanDevice, CompileErrorsNameTheProgramAndTheLineAndCarryTheLog) {
  const Error error = compile_error("#version 450\nlayout(local_size_x = 1) in;\nvoid main() { nonsense; }\n");
  EXPECT_EQ(error.code(), ErrorCode::compile_failed);
  EXPECT_TRUE(error.message().starts_with("conv does not compile, line 3: error: 'nonsense'")) << error.message();
  EXPECT_NE(error.log().find("nonsense"), std::string::npos) << error.log();
  EXPECT_TRUE(book_.records().empty()) << "what the caller is told needs no log";
}

TEST_F(VulkanDevice, DefinesDoNotShiftTheLinesOfErrors) {
  const Error error =
      compile_error(Request({.name = "conv",
                             .source = "#version 450\nlayout(local_size_x = 1) in;\nvoid main() { nonsense; }\n",
                             .language = Language::vulkan_glsl,
                             .defines = {{"A", "1"}, {"B", "2"}}}));
  EXPECT_NE(error.message().find("conv does not compile, line 3:"), std::string::npos) << error.message();
}

TEST_F(VulkanDevice, ErrorsInAnIncludedFileNameThatFile) {
  const Error error = compile_error(
      Request({.name = "conv",
               .source = "#version 450\n#include \"tile.glsl\"\nlayout(local_size_x = 1) in;\nvoid main() {}\n",
               .language = Language::vulkan_glsl,
               .headers = {{"tile.glsl", "float a;\n\nfloat tile() { return vec4(1); }\n"}}}));
  EXPECT_NE(error.message().find("tile.glsl line 3"), std::string::npos) << error.message();
  const Error after = compile_error(Request(
      {.name = "conv",
       .source = "#version 450\n#include \"tile.glsl\"\nlayout(local_size_x = 1) in;\nvoid main() { nonsense; }\n",
       .language = Language::vulkan_glsl,
       .headers = {{"tile.glsl", "float a;\n\n"}}}));
  EXPECT_NE(after.message().find("conv does not compile, line 4:"), std::string::npos) << after.message();
}

TEST_F(VulkanDevice, SourcesThatAreNoComputeShadersAreClearErrors) {
  EXPECT_NE(compile_error("void main() {}\n").message().find("#version 450"), std::string::npos);
  for (const char* version : {"110", "300 es", "330", "410"}) {
    testing::internal::CaptureStdout();
    const Error error = compile_error(fmt::format("#version {}\nvoid main() {{}}\n", version));
    EXPECT_EQ(testing::internal::GetCapturedStdout(), "") << version;
    EXPECT_EQ(error.code(), ErrorCode::compile_failed) << version;
  }
  EXPECT_EQ(compile_error("#version 450\nlayout(local_size_x = 1) in;\nvoid f() {}\n").code(),
            ErrorCode::compile_failed);
  EXPECT_EQ(compile_error(Request({.name = "conv", .source = "#version 450\n", .language = Language::glsl})).code(),
            ErrorCode::invalid_request);
  const Error named = compile_error(Request({.name = "conv",
                                             .source = vulkan_scale(1).source(),
                                             .entries = {"conv_main"},
                                             .language = Language::vulkan_glsl}));
  EXPECT_NE(named.message().find("conv_main"), std::string::npos);
}

TEST_F(VulkanDevice, TakesTheCompilersOptionsAndNoOthers) {
  for (const char* option : {"-O0", "-O", "-Os", "-g"}) {
    const auto compiled = device_->compile(Request({.name = "scale",
                                                    .source = vulkan_scale(2).source(),
                                                    .language = Language::vulkan_glsl,
                                                    .options = {option},
                                                    .defines = {{"FACTOR", "2.0"}}}));
    ASSERT_TRUE(compiled) << compiled.error().describe();
    EXPECT_TRUE(scales(*device_, *compiled->module, 2, 1)) << option;
  }
  const Error error = compile_error(Request({.name = "scale",
                                             .source = vulkan_scale(2).source(),
                                             .language = Language::vulkan_glsl,
                                             .options = {"--fast"}}));
  EXPECT_EQ(error.code(), ErrorCode::invalid_request);
  EXPECT_NE(error.message().find("scale has the unknown option --fast"), std::string::npos) << error.message();
}

TEST_F(VulkanDevice, LaunchesThatCannotBeAreErrors) {
  const Compiled compiled = device_->compile(vulkan_scale(1)).value();
  const auto buffer = device_->allocate(256).value();
  Module& module = *compiled.module;
  const auto error = [&](const Launch& launch) { return device_->launch(module, launch).error(); };
  const auto one = bytes_of(1.0F);
  EXPECT_EQ(error({.groups = {1U << 31, 1, 1}, .arguments = {buffer.get(), by_value(one)}}).code(),
            ErrorCode::invalid_request);
  EXPECT_EQ(error({.arguments = {nullptr, by_value(one)}}).code(), ErrorCode::invalid_request);
  EXPECT_EQ(error({.arguments = {by_value(one)}}).message(), "scale_1 declares 1 buffers; 0 were given");
  EXPECT_EQ(error({.arguments = {buffer.get(), buffer.get(), by_value(one)}}).code(), ErrorCode::invalid_request);
  EXPECT_EQ(error({.arguments = {buffer.get()}}).message(), "scale_1 declares 4 bytes of parameters; 0 were given");
  EXPECT_EQ(error({.arguments = {buffer.get(), by_value(bytes_of(1.0))}}).message(),
            "scale_1: the parameter offset takes a value of 4 bytes; a value of 8 bytes was given");
  EXPECT_EQ(error({.arguments = {buffer.get(), by_value(bytes_of(1.0))}}).code(), ErrorCode::invalid_request);
  const auto other = open_device("vulkan").value();
  const auto foreign = other->allocate(256).value();
  EXPECT_EQ(error({.arguments = {foreign.get(), by_value(one)}}).code(), ErrorCode::invalid_request);
  const Compiled strange = other->compile(vulkan_scale(1)).value();
  EXPECT_EQ(device_->launch(*strange.module, {.arguments = {buffer.get(), by_value(one)}}).error().code(),
            ErrorCode::invalid_request);
  std::vector<std::byte> bytes(100);
  EXPECT_EQ(device_->write(*buffer, bytes, 200).error().code(), ErrorCode::invalid_request);
  EXPECT_EQ(device_->read(*buffer, bytes, 1U << 30).error().code(), ErrorCode::invalid_request);
  EXPECT_TRUE(device_->read(*buffer, bytes, 156));
}

TEST_F(VulkanDevice, WhatAProgramDeclaresCountsEvenWhereItIsNotUsed) {
  const Request request = vulkan_program("idle",
                                         "layout(binding = 0) buffer A { uint a[]; };\n"
                                         "layout(binding = 1) buffer B { uint b[]; };\n"
                                         "layout(push_constant) uniform P { uint x; uint y; uint z; };",
                                         "a[0] = 7;");
  const Compiled compiled = device_->compile(request).value();
  const auto loaded = device_->load(compiled.binary.value()).value();
  const auto a = device_->allocate(4).value();
  const auto b = device_->allocate(0).value();
  const Launch launch{.arguments = {a.get(), b.get(), by_value(std::vector<std::byte>(12))}};
  for (Module* module : {compiled.module.get(), loaded.get()}) {
    device_->launch(*module, launch).value();
    EXPECT_EQ(download<std::uint32_t>(*device_, *a).value(), std::vector<std::uint32_t>{7});
  }
}

TEST_F(VulkanDevice, AProgramWithoutBuffersOrParametersRuns) {
  const Compiled compiled = device_->compile(vulkan_program("nothing", "", "")).value();
  EXPECT_TRUE(device_->launch(*compiled.module, {}));
  EXPECT_TRUE(device_->launch(*compiled.module, {.groups = {0, 1, 1}}));
}

TEST_F(VulkanDevice, ProgramsBeyondTheDevicesLimitsAreNamedWithBothNumbers) {
  const Error shared =
      compile_error(vulkan_program("tile", "layout(binding = 0) buffer A { float a[]; };\nshared float t[1000000];",
                                   "t[uint(a[0])] = 1; barrier(); a[1] = t[uint(a[2])];"));
  EXPECT_EQ(shared.code(), ErrorCode::unsupported);
  EXPECT_EQ(shared.message(),
            fmt::format("tile uses 4000000 bytes of shared memory in a work group; the device allows at most {}",
                        device_->info().limits.shared_bytes));
  const Error large = compile_error(
      Request({.name = "wide",
               .source = "#version 450\nlayout(local_size_x = 1024, local_size_y = 1024) in;\nvoid main() {}\n",
               .language = Language::vulkan_glsl}));
  EXPECT_EQ(large.code(), ErrorCode::unsupported);
  EXPECT_NE(large.message().find("wide has work groups of 1024x1024x1 items"), std::string::npos)
      << large.message();
  const Error many = compile_error(vulkan_program("pushy",
                                                  "layout(push_constant) uniform P { vec4 p[9999]; };\n"
                                                  "layout(binding = 0) buffer A { vec4 a[]; };",
                                                  "a[0] = p[int(a[1].x)];"));
  EXPECT_NE(many.message().find("pushy declares 159984 bytes of parameters"), std::string::npos) << many.message();
}

TEST_F(VulkanDevice, SpirvMayUseWhatTheDeviceHasEnabled) {
  const auto spirv = [](spv::Capability capability) {
    const fakes::DoublingModule module{.capabilities = {spv::Capability::Shader, capability}};
    return Request({.name = "double", .source = module.bytes(), .language = Language::spirv});
  };
  for (const spv::Capability capability : {spv::Capability::Matrix, spv::Capability::ImageQuery})
    EXPECT_TRUE(device_->compile(spirv(capability)));
  if (device_->info().software)
    for (const spv::Capability capability :
         {spv::Capability::Float64, spv::Capability::Int64, spv::Capability::Int16, spv::Capability::Float16,
          spv::Capability::Int8, spv::Capability::Int64Atomics}) {
      const auto compiled = device_->compile(spirv(capability));
      EXPECT_TRUE(compiled) << compiled.error().message();
    }
  if (!device_->info().software) return;
  const Error error = compile_error(spirv(spv::Capability::MinLod));
  EXPECT_EQ(error.code(), ErrorCode::unsupported);
  EXPECT_EQ(error.message(),
            "double declares the SPIR-V capability MinLod, which Kiln does not enable on this device");
}

TEST_F(VulkanDevice, AProgramThatTheDriverRefusesDoesNotCompile) {
  if (!device_->info().software) GTEST_SKIP() << "the driver may take it";
  const Error error = compile_error(
      "#version 450\n#extension GL_NV_shader_subgroup_partitioned : require\n"
      "layout(local_size_x = 1) in;\nlayout(binding = 0) buffer A { uint a[]; };\n"
      "void main() { a[0] = subgroupPartitionNV(a[1]).x; }\n");
  EXPECT_EQ(error.code(), ErrorCode::compile_failed);
  EXPECT_EQ(error.message(), "conv does not compile: the driver refuses its SPIR-V (VK_ERROR_UNKNOWN)");
}

TEST_F(VulkanDevice, AnEntryPointWithANameThatCannotBeStoredIsRefused) {
  const auto spirv = [](std::size_t length) {
    const fakes::DoublingModule module{.entry = std::string(length, 'm')};
    return Request({.name = "double", .source = module.bytes(), .language = Language::spirv});
  };
  const Compiled compiled = device_->compile(spirv(4096)).value();
  EXPECT_TRUE(device_->load(compiled.binary.value()));
  const Error error = compile_error(spirv(4097));
  EXPECT_EQ(error.code(), ErrorCode::compile_failed);
  EXPECT_EQ(error.message(), "double: the name of an entry point has 4097 bytes; use at most 4096");
}

TEST_F(VulkanDevice, ResourcesThatALaunchCannotBindAreNamed) {
  EXPECT_EQ(compile_error(vulkan_program("odd",
                                         "#extension GL_EXT_nonuniform_qualifier : require\n"
                                         "layout(binding = 0) buffer U { uint u; } many[];",
                                         "many[nonuniformEXT(gl_GlobalInvocationID.x)].u = 1;"))
                .message(),
            "odd cannot be run: it declares an array of resources called many whose length is unknown");
  const fakes::DoublingModule far{.binding = 70000};
  EXPECT_EQ(compile_error(Request({.name = "far", .source = far.bytes(), .language = Language::spirv})).message(),
            "far: it declares a storage buffer with the binding 70000; the highest is 65535");
  const Error sets =
      compile_error(vulkan_program("sets", "layout(set = 62, binding = 1) buffer U { vec4 u; };", ""));
  if (device_->info().software) {
    EXPECT_EQ(sets.code(), ErrorCode::unsupported);
    EXPECT_TRUE(
        sets.message().starts_with("sets declares the storage buffer U (set 62, binding 1); the device "
                                   "allows at most "))
        << sets.message();
  }
}

TEST_F(VulkanDevice, AnAllocationThatCannotBeIsOutOfMemory) {
  for (const std::size_t bytes : {std::size_t{1} << 50, ~std::size_t{0}}) {
    const auto result = device_->allocate(bytes);
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code(), ErrorCode::out_of_memory) << result.error().message();
  }
  const auto none = device_->allocate(0).value();
  EXPECT_EQ(none->size(), 0U);
  EXPECT_TRUE(device_->write(*none, {}, 0));
  EXPECT_TRUE(device_->read(*none, {}, 0));
}

TEST_F(VulkanDevice, MemoryTheHostDoesNotReachIsCopied) {
  const auto staged = vulkan::open_vulkan_device(0, book_.log(), vulkan::Context::Reach::staged).value();
  const Compiled compiled = staged->compile(vulkan_scale(5)).value();
  EXPECT_TRUE(scales(*staged, *compiled.module, 5, 2));
  // More than passes through the staging memory at once, and not a whole number of words.
  std::vector<std::uint8_t> numbers((std::size_t{33} << 20) + 3);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<std::uint8_t>(i * 7 + (i >> 16));
  const auto buffer = upload(*staged, numbers).value();
  EXPECT_TRUE(download<std::uint8_t>(*staged, *buffer).value() == numbers);
  std::array<std::byte, 5> part = {};
  staged->read(*buffer, part, (std::size_t{17} << 20) + 1).value();
  EXPECT_EQ(std::to_integer<std::uint8_t>(part[4]), numbers[(std::size_t{17} << 20) + 5]);
}

TEST_F(VulkanDevice, LaunchesFromSixteenThreadsAtOnceAreRight) {
  const Compiled compiled = device_->compile(vulkan_scale(2)).value();
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 16; ++t)
    threads.emplace_back([&, t] {
      for (int round = 0; round < 10; ++round)
        if (!scales(*device_, *compiled.module, 2, static_cast<float>(t))) ++wrong;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(VulkanDevice, CompilesAndLoadsFromManyThreadsAtOnce) {
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      const Compiled compiled = device_->compile(vulkan_scale(t)).value();
      const auto loaded = device_->load(compiled.binary.value()).value();
      if (!scales(*device_, *loaded, t, 1) || !scales(*device_, *compiled.module, t, 1)) ++wrong;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(VulkanDevice, ModulesAndBuffersOutliveTheirDevice) {
  auto compiled = device_->compile(vulkan_scale(2)).value();
  auto buffer = device_->allocate(64).value();
  device_.reset();
  std::thread([module = std::move(compiled.module), memory = std::move(buffer)]() mutable {
    module.reset();
    memory.reset();
  }).join();
}

TEST_F(VulkanDevice, ASecondCacheFindsWhatTheFirstOneKept) {
  {
    Cache cache(device_, options());
    const Program program = cache.get(vulkan_scale(6)).value();
    cache.flush();
    EXPECT_EQ(cache.stats().compiles, 1U);
  }
  const auto again = open_device("vulkan", book_.log()).value();
  Cache cache(again, options());
  const Program program = cache.get(vulkan_scale(6)).value();
  EXPECT_EQ(cache.stats().compiles, 0U);
  EXPECT_EQ(cache.stats().disk_hits, 1U);
  EXPECT_EQ(program.as<vulkan::Module>().name(), "scale_6");
  EXPECT_TRUE(book_.records().empty());
}

/// These begin in a process of their own, whose environment they change before a driver is loaded.
TEST(VulkanFromTheStart, NoDriverBehindTheLoaderIsOneClearSentence) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto work = [] {
    setenv("VK_ICD_FILENAMES", "/nonexistent.json", 1);
    setenv("VK_DRIVER_FILES", "/nonexistent.json", 1);
    const auto device = open_device("vulkan");
    if (device || device.error().code() != ErrorCode::no_device) return 2;
    if (device.error().message().find("mesa-vulkan-drivers") == std::string::npos) return 3;
    const auto listed = vulkan::list_vulkan_devices({});
    return listed.size() == 1 && listed[0].name == "vulkan" && !listed[0].problem.empty() ? 0 : 4;
  };
  EXPECT_EXIT(_exit(work()), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace kiln
