#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <thread>

#include <unistd.h>

#include <kiln/hip.hpp>

#include "backend/cuda_samples.hpp"
#include "backend/hip/hip.hpp"
#include "contract/kernels.hpp"
#include "fakes/child.hpp"
#include "fakes/files.hpp"
#include "fakes/temporary_folder.hpp"

namespace kiln {
namespace {

using fakes::cuda_scale;
using fakes::cuda_scales;

bool has_hipcc() {
  std::string path = std::getenv("PATH");
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t end = std::min(path.find(':', begin), path.size());
    if (access((path.substr(begin, end - begin) + "/hipcc").c_str(), X_OK) == 0) return true;
    begin = end + 1;
  }
  return false;
}

bool has_library() {
  for (const char* name : {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5"})
    if (base::DynamicLibrary::open(name)) return true;
  return false;
}

/// Compiles for AMD GPUs that are not here.
class HipCompiler : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_hipcc()) GTEST_SKIP() << "there is no hipcc";
  }
};

TEST_F(HipCompiler, MakesCodeObjectsForTwoArchitectures) {
  const Binary vega = hip::compile_for(cuda_scale(3, Language::hip), "gfx906").value();
  const Binary rdna = hip::compile_for(cuda_scale(3, Language::hip), "gfx1030").value();
  EXPECT_NE(vega.bytes, rdna.bytes);
  for (const Binary* binary : {&vega, &rdna}) {
    const auto parts = cuda::parts_of(*binary, cuda::ImageKind::code_object).value();
    EXPECT_EQ(parts.name, "scale_3");
    EXPECT_EQ(parts.entries, (std::vector<cuda::EntryPoint>{{"scale", "scale"}}));
  }
  EXPECT_NE(fakes::text_of(vega.bytes).find("gfx906"), std::string::npos);
}

TEST_F(HipCompiler, CompilesEveryWordOfTheDialectAndNativeAtomicsBesideThem) {
  for (const Kernel& kernel : {contract::words(), contract::native_atomics()}) {
    const auto binary = hip::compile_for(kernel.request(Language::hip).value(), "gfx906");
    EXPECT_TRUE(binary) << binary.error().describe();
  }
}

TEST_F(HipCompiler, ErrorsInWhatIsDeclaredForAKernelNameTheDeclaration) {
  Kernel broken = contract::scale(3);
  broken.shared = {{"tile", Type::f32, {"TILES"}}};
  const auto result = hip::compile_for(broken.request(Language::hip).value(), "gfx906");
  ASSERT_FALSE(result);
  EXPECT_TRUE(result.error().message().starts_with(
      "scale_3 does not compile, in the line that Kiln generated, \"__shared__ float tile[TILES];\": error: "))
      << result.error().describe();
}

TEST_F(HipCompiler, ErrorsNameTheLineAndCarryTheLog) {
  const auto result = hip::compile_for(Request({.name = "conv",
                                                .source = "\n\nextern \"C\" __global__ void conv() { nonsense; }\n",
                                                .entries = {"conv"},
                                                .language = Language::hip,
                                                .defines = {{"A", "1"}}}),
                                       "gfx906");
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code(), ErrorCode::compile_failed);
  EXPECT_TRUE(result.error().message().starts_with("conv does not compile, line 3: error: "))
      << result.error().message();
  EXPECT_NE(result.error().log().find("nonsense"), std::string::npos) << result.error().log();
}

TEST_F(HipCompiler, TakesSourcesThatIncludeTheRuntimesHeader) {
  const auto binary =
      hip::compile_for(Request({.name = "conv",
                                .source = "#include <hip/hip_runtime.h>\n#include <hip/hip_fp16.h>\n"
                                          "extern \"C\" __global__ void conv(__half* x) { *x = 1; }\n",
                                .entries = {"conv"},
                                .language = Language::hip}),
                       "gfx906");
  EXPECT_TRUE(binary) << binary.error().describe();
}

TEST_F(HipCompiler, AKernelThatIsNotThereIsNamed) {
  const auto result = hip::compile_for(Request({.name = "conv",
                                                .source = "extern \"C\" __global__ void upscale() {}\n",
                                                .entries = {"scale"},
                                                .language = Language::hip}),
                                       "gfx906");
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code(), ErrorCode::compile_failed);
  EXPECT_TRUE(result.error().message().starts_with("conv has no kernel called scale;")) << result.error().message();
}

TEST_F(HipCompiler, AnOverloadedEntryIsSelectedByACast) {
  Request::Fields fields{.name = "two",
                         .source =
                             "__global__ void add(int* data) { ++*data; }\n"
                             "__global__ void add(float* data) { ++*data; }\n"
                             "template <class T> __global__ void scale(T* data) { *data *= 2; }\n",
                         .entries = {"add"},
                         .language = Language::hip};
  const auto ambiguous = hip::compile_for(Request(fields), "gfx906");
  ASSERT_FALSE(ambiguous);
  EXPECT_EQ(ambiguous.error().code(), ErrorCode::compile_failed);
  EXPECT_EQ(ambiguous.error().message(),
            "two has several kernels called add; select one by a cast, as in (void(*)(int*))add");
  for (const char* entry : {"scale", "(void(*)(double*))add"}) {
    fields.entries = {entry};
    const auto missing = hip::compile_for(Request(fields), "gfx906");
    ASSERT_FALSE(missing);
    EXPECT_TRUE(missing.error().message().starts_with(std::string("two has no kernel called ") + entry + ";"))
        << missing.error().message();
  }
  fields.entries = {"(void(*)(int*))add", "scale<float>", "&scale<int>"};
  const auto binary = hip::compile_for(Request(fields), "gfx906");
  ASSERT_TRUE(binary) << binary.error().describe();
  EXPECT_EQ(cuda::parts_of(*binary, cuda::ImageKind::code_object).value().entries,
            (std::vector<cuda::EntryPoint>{{fields.entries[0], "_Z3addPi"},
                                           {"scale<float>", "_Z5scaleIfEvPT_"},
                                           {"&scale<int>", "_Z5scaleIiEvPT_"}}));
}

TEST_F(HipCompiler, RefusesWhatIsNoArchitecture) {
  for (const char* name : {"", "sm_90", "gfx906 -x", "gfx906;true"})
    EXPECT_EQ(hip::compile_for(cuda_scale(3, Language::hip), name).error().code(), ErrorCode::invalid_request);
  EXPECT_EQ(hip::compile_for(cuda_scale(3, Language::hip), "gfx1").error().code(), ErrorCode::compile_failed);
  EXPECT_EQ(hip::compile_for(cuda_scale(3), "gfx906").error().code(), ErrorCode::invalid_request);
}

TEST_F(HipCompiler, LeavesNothingBehind) {
  const fakes::TemporaryFolder folder;
  const std::string told = fakes::in_child([&folder]() -> std::string {
    setenv("TMPDIR", folder.path().c_str(), 1);
    return hip::compile_for(cuda_scale(3, Language::hip), "gfx906") ? "compiled" : "failed";
  });
  EXPECT_EQ(told, "compiled");
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(MissingHipCompiler, IsNamedWithWhatProvidesIt) {
  if (access("/opt/rocm/bin/hipcc", X_OK) == 0) GTEST_SKIP() << "ROCm has its own";
  const std::string told = fakes::in_child([]() -> std::string {
    setenv("PATH", "/nowhere", 1);
    const auto result = hip::compile_for(cuda_scale(3, Language::hip), "gfx906");
    return result ? "compiled" : std::string(to_string(result.error().code())) + ": " + result.error().message();
  });
  EXPECT_TRUE(told.starts_with("unsupported: hipcc is missing: install ")) << told;
}

TEST(BrokenHipCompiler, IsNamedWithWhatToDo) {
  const fakes::TemporaryFolder folder;
  fakes::write_file(folder.path() / "hipcc", "#!/bin/sh\nexit 0\n");
  std::filesystem::permissions(folder.path() / "hipcc", std::filesystem::perms::owner_all);
  const std::string told = fakes::in_child([&folder]() -> std::string {
    setenv("PATH", folder.path().c_str(), 1);
    const auto identity = hip::identity_for("gfx906");
    return identity ? "found" : std::string(to_string(identity.error().code())) + ": " + identity.error().message();
  });
  EXPECT_EQ(told, "unsupported: hipcc --version does not print a version; reinstall hipcc");
}

TEST(CodeObject, NoTruncatedOneIsTakenForAWholeOne) {
  if (!has_hipcc()) GTEST_SKIP() << "there is no hipcc";
  const Binary binary = hip::compile_for(cuda_scale(3, Language::hip), "gfx906").value();
  const auto image = cuda::parts_of(binary, cuda::ImageKind::code_object).value().image;
  for (std::size_t size = 0; size < image.size(); size += size < 8192 ? 61 : 40009) {
    const std::vector<std::byte> part(image.begin(), image.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_FALSE(cuda::is_whole(part, cuda::ImageKind::code_object)) << size;
  }
}

TEST(HipLibrary, HasEveryFunctionAndSaysThatThereIsNoDevice) {
  if (!has_library()) GTEST_SKIP() << "libamdhip64 is not installed";
  const auto devices = hip::list_hip_devices({});
  ASSERT_FALSE(devices.empty());
  if (devices[0].name == "hip:0") GTEST_SKIP() << "there is a device";
  EXPECT_EQ(devices[0].name, "hip");
  EXPECT_EQ(devices[0].problem, "the HIP runtime (libamdhip64) is installed, but there is no AMD device");
  const auto opened = open_device("hip:0");
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code(), ErrorCode::no_device);
  EXPECT_EQ(hip::adopt(nullptr).error().code(), ErrorCode::no_device);
}

TEST(HipArchitecture, IsNamedAsTheCompilerNamesIt) {
  EXPECT_EQ(hip::architecture_name(90006), "gfx906");
  EXPECT_EQ(hip::architecture_name(90010), "gfx90a");
  EXPECT_EQ(hip::architecture_name(90402), "gfx942");
  EXPECT_EQ(hip::architecture_name(100300), "gfx1030");
  EXPECT_EQ(hip::architecture_name(110001), "gfx1101");
  EXPECT_EQ(hip::architecture_name(0), std::nullopt);
}

TEST(HipArchitecture, IsFoundByThePlaceOfTheDevice) {
  const fakes::TemporaryFolder folder;
  fakes::write_file(folder.path() / "0/properties", "cpu_cores_count 16\ngfx_target_version 0\nlocation_id 0\n");
  fakes::write_file(folder.path() / "1/properties",
                    "simd_count 240\ngfx_target_version 90006\nlocation_id 768\ndomain 0\n");
  fakes::write_file(folder.path() / "2/properties",
                    "simd_count 144\ngfx_target_version 100300\nlocation_id 768\ndomain 1\nunique_id "
                    "16727424123456789012\nnum_xcc 1\n");
  EXPECT_EQ(hip::architecture_at("0000:03:00.0", folder.path()), "gfx906");
  EXPECT_EQ(hip::architecture_at("0001:03:00.0", folder.path()), "gfx1030");
  EXPECT_EQ(hip::architecture_at("0000:04:00.0", folder.path()), std::nullopt);
  EXPECT_EQ(hip::architecture_at("0000:00:00.0", folder.path()), std::nullopt) << "a CPU";
  EXPECT_EQ(hip::architecture_at("nonsense", folder.path()), std::nullopt);
  EXPECT_EQ(hip::architecture_at("0000:03:00.0", folder.path() / "nowhere"), std::nullopt);
}

TEST(HipTargets, SuitDevicesOfTheirArchitectureThoseWithFeaturesFirst) {
  const auto rank = [](const char* device, const char* driver, std::uint32_t format = 3) {
    const cuda::Target own{"gfx90a", cuda::ImageKind::code_object, "", "HIP 6"};
    return hip::platform().rank(
        own, 60'032'830, {.api = "hip", .vendor = "AMD", .device = device, .driver = driver, .formats = {format}});
  };
  EXPECT_GT(rank("gfx90a:sramecc+:xnack-", ""), rank("gfx90a:xnack-", ""));
  EXPECT_GT(rank("gfx90a:xnack-", ""), rank("gfx90a", ""));
  EXPECT_GT(rank("gfx90a", ""), 0U);
  EXPECT_GT(rank("gfx90a", "HIP 6"), 0U);
  EXPECT_EQ(rank("gfx90a", "HIP 5"), 0U);
  EXPECT_EQ(rank("gfx906", ""), 0U);
  EXPECT_EQ(rank("gfx90", ""), 0U);
  EXPECT_EQ(rank("gfx90a", "", 1), 0U);
}

TEST(HipDevice, CompilesLaunchesAndLoads) {
  const auto device = open_device("hip");
  if (!device) GTEST_SKIP() << device.error().message();
  const Compiled compiled = (*device)->compile(cuda_scale(3, Language::hip)).value();
  EXPECT_TRUE(cuda_scales(**device, *compiled.module, 3, 0.5F));
  const auto loaded = (*device)->load(compiled.binary.value()).value();
  EXPECT_TRUE(cuda_scales(**device, *loaded, 3, 1));
}

}  // namespace
}  // namespace kiln
