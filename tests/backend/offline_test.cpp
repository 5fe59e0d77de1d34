#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "backend/cuda/image.hpp"
#include "backend/offline.hpp"
#include "backend/vulkan/spirv_program.hpp"
#include "backend/vulkan_fixture.hpp"
#include "fakes/files.hpp"
#include "fakes/temporary_folder.hpp"

// Compiling for devices that are not here.
namespace kiln {
namespace {

using backend::open_offline;
using backend::suits;
using fakes::vulkan_scale;

Request program_in(Language language, std::vector<std::string> options = {}) {
  return Request({.name = "nothing",
                  .source = "extern \"C\" __global__ void nothing() {}\n",
                  .language = language,
                  .options = std::move(options)});
}

/// A program that has the names of its files in its code, with a given header and one of a folder whose name a
/// compiler gets through a link.
Request with_file_names(Language language, const std::filesystem::path& folder, std::vector<std::string> options) {
  std::filesystem::create_directories(folder / "with spaces");
  fakes::write_file(folder / "with spaces" / "found.h",
                    "__device__ inline const char* found_in() { return __FILE__; }\n");
  return Request({.name = "names",
                  .source = "#include \"given.h\"\n#include \"found.h\"\n"
                            "extern \"C\" __global__ void names(const char** out) {\n"
                            "  out[0] = __FILE__; out[1] = given_in(); out[2] = found_in();\n}\n",
                  .entries = {"names"},
                  .language = language,
                  .options = std::move(options),
                  .headers = {{"given.h", "__device__ inline const char* given_in() { return __FILE__; }\n"}},
                  .include_folders = {folder / "with spaces"}});
}

std::vector<std::byte> bytes_of(Backend& backend, const Request& request) {
  auto compiled = backend.compile(request);
  EXPECT_TRUE(compiled) << compiled.error().describe();
  return compiled ? compiled->binary->bytes : std::vector<std::byte>();
}

/// Compiles a program twice, so that temporary folders have other names.
void expect_equal_bytes(std::string_view target, const Request& request) {
  const auto backend = open_offline(target);
  if (!backend) GTEST_SKIP() << backend.error().message();
  const auto first = bytes_of(**backend, request);
  EXPECT_FALSE(first.empty());
  EXPECT_TRUE(first == bytes_of(**backend, request)) << target;
}

TEST(OfflineCuda, EqualRequestsGiveEqualBytes) {
  const fakes::TemporaryFolder folder;
  expect_equal_bytes("sm_90", with_file_names(Language::cuda, folder.path(), {}));
}

TEST(OfflineCuda, EqualRequestsGiveEqualBytesWithLineNumbers) {
  const fakes::TemporaryFolder folder;
  for (const std::string& option : std::vector<std::string>{"-lineinfo", "-G"})
    expect_equal_bytes("sm_90", with_file_names(Language::cuda, folder.path(), {option}));
}

TEST(OfflineCuda, EqualRequestsGiveEqualPtx) {
  const fakes::TemporaryFolder folder;
  expect_equal_bytes("compute_90", with_file_names(Language::cuda, folder.path(), {"-lineinfo"}));
}

TEST(OfflineHip, EqualRequestsGiveEqualBytes) {
  const fakes::TemporaryFolder folder;
  expect_equal_bytes("gfx90a", with_file_names(Language::hip, folder.path(), {}));
}

TEST(OfflineHip, EqualRequestsGiveEqualBytesWithDebugInformation) {
  const fakes::TemporaryFolder folder;
  expect_equal_bytes("gfx90a", with_file_names(Language::hip, folder.path(), {"-g"}));
}

TEST(OfflineVulkan, EqualRequestsGiveEqualBytes) { expect_equal_bytes("vulkan", vulkan_scale(3)); }

TEST(OfflineCuda, PtxHasAnIdentityOfItsOwn) {
  const auto backend = open_offline("compute_90");
  if (!backend) GTEST_SKIP() << backend.error().message();
  const Identity& identity = (*backend)->identity();
  EXPECT_EQ(identity.device, "compute_90");
  EXPECT_TRUE(identity.driver.starts_with("CUDA ")) << identity.driver;
  EXPECT_EQ(identity.formats, std::vector<std::uint32_t>{static_cast<std::uint32_t>(cuda::ImageKind::ptx)});
  const Compiled compiled = (*backend)->compile(program_in(Language::cuda)).value();
  EXPECT_EQ(compiled.binary->format, static_cast<std::uint32_t>(cuda::ImageKind::ptx));
  EXPECT_NE(fakes::text_of(compiled.binary->bytes).find(".target sm_90"), std::string::npos);
  EXPECT_EQ(compiled.module->entries(), std::vector<std::string>{"nothing"});
  EXPECT_EQ(open_offline("compute_90a").error().code(), ErrorCode::invalid_request);
}

TEST(OfflineCuda, UnknownArchitecturesAreErrorsWithThoseThatNvrtcKnows) {
  const auto known = backend::cuda_architectures();
  if (!known) GTEST_SKIP() << known.error().message();
  EXPECT_NE(std::ranges::find(*known, "sm_90"), known->end());
  for (const std::string& name : std::vector<std::string>{"sm_33", "compute_33"}) {
    const auto opened = open_offline(name);
    ASSERT_FALSE(opened);
    EXPECT_EQ(opened.error().code(), ErrorCode::unsupported);
    EXPECT_NE(opened.error().message().find(name), std::string::npos) << opened.error().message();
    EXPECT_NE(opened.error().message().find("_90"), std::string::npos) << opened.error().message();
  }
}

TEST(OfflineHip, UnknownArchitecturesAreErrorsWithThoseThatHipccKnows) {
  if (const auto known = open_offline("gfx906"); !known) GTEST_SKIP() << known.error().message();
  const auto unknown = open_offline("gfx9999");
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code(), ErrorCode::unsupported);
  EXPECT_NE(unknown.error().message().find("does not compile for gfx9999; it knows gfx"), std::string::npos)
      << unknown.error().message();
  const auto feature = open_offline("gfx1030:xnack-");
  ASSERT_FALSE(feature);
  EXPECT_EQ(feature.error().code(), ErrorCode::unsupported);
  EXPECT_NE(feature.error().message().find("does not compile for gfx1030:xnack-: clang: error: "),
            std::string::npos)
      << feature.error().message();
}

TEST(OfflineHip, FeaturesArePartOfTheArchitectureInTheOrderOfTheirNames) {
  const auto backend = open_offline("gfx90a:xnack-:sramecc+");
  if (!backend) GTEST_SKIP() << backend.error().message();
  EXPECT_EQ((*backend)->identity().device, "gfx90a:sramecc+:xnack-");
  EXPECT_EQ((*backend)->identity().driver, "");
  const Compiled compiled = (*backend)->compile(program_in(Language::hip)).value();
  EXPECT_NE(fakes::text_of(compiled.binary->bytes).find("gfx90a:sramecc+:xnack-"), std::string::npos);
}

TEST(OfflineVulkan, CompilesGlslAndTakesSpirvThatIsValid) {
  const auto backend = open_offline("vulkan");
  if (!backend) GTEST_SKIP() << backend.error().message();
  EXPECT_EQ((*backend)->identity().device, "SPIR-V");
  const Compiled compiled = (*backend)->compile(vulkan_scale(3)).value();
  EXPECT_EQ(compiled.module->entries(), std::vector<std::string>{"main"});
  const auto program = vulkan::portable_program(*compiled.binary).value();
  EXPECT_EQ(program.name, "scale_3");
  std::string words(program.module.words.size() * 4, '\0');
  std::memcpy(words.data(), program.module.words.data(), words.size());
  const auto given = [&](std::string bytes) {
    return (*backend)->compile(Request({.name = "given", .source = std::move(bytes), .language = Language::spirv}));
  };
  const auto taken = given(words);
  // Only the library that was built with Kiln can check SPIR-V.
  if (!taken && taken.error().code() == ErrorCode::unsupported) GTEST_SKIP() << taken.error().message();
  ASSERT_TRUE(taken) << taken.error().describe();
  EXPECT_EQ(vulkan::portable_program(*taken->binary).value().module.words, program.module.words);
  EXPECT_EQ(given(words.substr(0, words.size() - 8)).error().code(), ErrorCode::compile_failed);
  EXPECT_EQ((*backend)->compile(program_in(Language::cuda)).error().code(), ErrorCode::invalid_request);
}

TEST(OfflineVulkan, DamagedBinariesAreRefused) {
  const auto backend = open_offline("vulkan");
  if (!backend) GTEST_SKIP() << backend.error().message();
  const Binary binary = (*backend)->compile(vulkan_scale(3)).value().binary.value();
  for (std::size_t size = 0; size < binary.bytes.size(); size += 7) {
    const Binary part{binary.format,
                      {binary.bytes.begin(), binary.bytes.begin() + static_cast<std::ptrdiff_t>(size)}};
    EXPECT_EQ((*backend)->load(part).error().code(), ErrorCode::load_failed);
  }
  EXPECT_EQ((*backend)->load({binary.format + 1, binary.bytes}).error().code(), ErrorCode::load_failed);
}

TEST(OfflineTargets, TakeRequestsOfTheirApiThatSelectNoOtherArchitecture) {
  EXPECT_TRUE(suits(program_in(Language::cuda), "sm_80"));
  EXPECT_TRUE(suits(program_in(Language::cuda), "compute_80"));
  EXPECT_FALSE(suits(program_in(Language::cuda), "gfx906"));
  EXPECT_FALSE(suits(program_in(Language::cuda), "vulkan"));
  EXPECT_TRUE(suits(program_in(Language::hip), "gfx906"));
  EXPECT_TRUE(suits(vulkan_scale(1), "vulkan"));
  EXPECT_FALSE(suits(vulkan_scale(1), "sm_80"));
  EXPECT_TRUE(suits(Request({.name = "s", .source = "s", .language = Language::spirv}), "vulkan"));
  for (const Language compiled : {Language::cubin, Language::ptx, Language::fatbin})
    EXPECT_FALSE(suits(Request({.name = "c", .source = "c", .language = compiled}), "sm_80"));

  EXPECT_TRUE(suits(program_in(Language::cuda, {"-arch=sm_90a"}), "sm_90"));
  EXPECT_FALSE(suits(program_in(Language::cuda, {"-arch=sm_90a"}), "sm_80"));
  EXPECT_FALSE(suits(program_in(Language::cuda, {"--gpu-architecture", "sm_90"}), "sm_80"));
  EXPECT_FALSE(suits(program_in(Language::cuda, {"-arch=compute_90"}), "sm_90")) << "makes no machine code";
  EXPECT_TRUE(suits(program_in(Language::cuda, {"-arch=compute_90"}), "compute_90"));
  EXPECT_FALSE(suits(program_in(Language::cuda, {"-arch=sm_90a"}), "compute_90")) << "is not for later GPUs";

  EXPECT_TRUE(
      suits(program_in(Language::hip, {"--offload-arch=gfx90a:xnack-:sramecc+"}), "gfx90a:sramecc+:xnack-"));
  EXPECT_FALSE(suits(program_in(Language::hip, {"--offload-arch=gfx90a"}), "gfx90a:xnack-"));
}

TEST(OfflineTargets, ThatAreNoneAreRefused) {
  for (const char* name : {"", "Vulkan", "opengl", "sm_", "compute_", "gfx 906"})
    EXPECT_EQ(open_offline(name).error().code(), ErrorCode::invalid_request) << name;
}

TEST(OfflineCompilers, AreListedWithTheirVersionOrWhatIsMissing) {
  const auto found = backend::find_compilers();
  ASSERT_EQ(found.size(), 3U);
  for (const auto& compiler : found) EXPECT_NE(compiler.version.empty(), compiler.problem.empty()) << compiler.api;
}

}  // namespace
}  // namespace kiln
