#include <kiln/cache.hpp>
#include <kiln/device.hpp>

#include "backend/offline.hpp"
#include "backend/quirks/mesa_spirv_binary.hpp"
#include "backend/vulkan_modules.hpp"
#include "cli_fixture.hpp"

namespace kiln::cli {
namespace {

/// `kiln compile`, and what `why` and `show` say of programs with several files and entry points.
class CliCompile : public Cli {
 protected:
  /// OpenCL C of two kernels that use a header.
  const std::string two_kernels_ =
      "#include \"factor.h\"\n"
      "kernel void twice(global float* data) { data[get_global_id(0)] *= 2.0f * FACTOR; }\n"
      "kernel void half_of(global float* data) { data[get_global_id(0)] /= 2.0f * FACTOR; }\n";

  void write_factor(const std::string& value) const {
    write(home_.path() / "factor.h", "#define FACTOR " + value + "\n");
  }
  static bool has_opencl() { return static_cast<bool>(open_device("opencl", quiet)); }
};

TEST_F(CliCompile, StoresProgramsThatApplicationsFind) {
  const auto device = open_device("opengl", quiet);
  if (!device) GTEST_SKIP() << device.error().message();
  const auto file = source_file("double.comp");
  const auto first = kiln({"compile", file, "--device", "opengl", "-D", "TILE=8", "--json"});
  ASSERT_EQ(first.status, 0) << first.error;
  EXPECT_EQ(first.json()["programs"][0]["outcome"], "compiled");
  EXPECT_EQ(first.json()["programs"][0]["key"], request("double").key().digest.hex());
  EXPECT_EQ(
      kiln({"compile", file, "--device", "opengl", "-D", "TILE=8", "--json"}).json()["programs"][0]["outcome"],
      "stored");
  Cache cache(*device, {.directory = this->cache(), .log = quiet});
  EXPECT_EQ(cache.get(request("double")).value().origin(), Origin::disk);
}

TEST_F(CliCompile, GoesOnAfterAFileThatDoesNotCompile) {
  if (!has_opencl()) GTEST_SKIP() << "there is no OpenCL device";
  const auto good = source_file("good.cl", "kernel void good(global int* x) { x[0] = 1; }\n");
  const auto bad = source_file("bad.cl", "kernel void bad(global int* x) { x[0] = nonsense; }\n");
  const auto absent = (home_.path() / "absent.cl").string();
  const auto outcome = kiln({"compile", bad, absent, good, "--json"});
  EXPECT_EQ(outcome.status, 1);
  const auto programs = outcome.json()["programs"];
  EXPECT_EQ(programs[0]["error"]["code"], "compile_failed") << programs;
  EXPECT_TRUE(contains(programs[0]["error"]["log"], "nonsense")) << programs;
  EXPECT_EQ(programs[1]["error"]["code"], "io") << programs;
  EXPECT_EQ(programs[2]["outcome"], "compiled") << programs;
  const auto text = kiln({"compile", bad, absent, good});
  EXPECT_EQ(text.status, 1);
  EXPECT_TRUE(contains(text.error, bad + ": bad does not compile, line 1")) << text.error;
  EXPECT_TRUE(contains(text.error, absent)) << text.error;
  EXPECT_TRUE(contains(text.out, "0 compiled, 1 stored before, 2 failed")) << text.out;
}

TEST_F(CliCompile, SaysThatAProgramWasNotStoredAndWhy) {
  const auto device = open_device("opengl", quiet);
  if (!device) GTEST_SKIP() << device.error().message();
  const Identity& identity = (*device)->identity();
  if (!backend::quirks::MesaSpirvBinary::affects(identity.vendor + identity.driver))
    GTEST_SKIP() << "the driver returns binaries of SPIR-V";
  const auto file = source_file("double.spv", fakes::DoublingModule{}.bytes());
  const auto text = kiln({"compile", file, "--device", "opengl"});
  EXPECT_EQ(text.status, 1);
  EXPECT_TRUE(contains(text.out, "0 compiled, 0 stored before, 0 failed, 1 not stored")) << text.out;
  EXPECT_TRUE(contains(text.error, file + ": the program compiles, but the driver provides no binary"))
      << text.error;
  const auto outcome = kiln({"compile", file, "--device", "opengl", "--json"});
  EXPECT_EQ(outcome.json()["programs"][0]["outcome"], "not stored");
  EXPECT_EQ(outcome.json()["programs"][0]["error"]["code"], "unsupported");
}

TEST_F(CliCompile, SaysThatTheCacheDirectoryCannotBeUsed) {
  const auto device = open_device("opengl", quiet);
  if (!device) GTEST_SKIP() << device.error().message();
  write(cache(), "a file");
  const auto outcome =
      kiln({"compile", source_file("double.comp"), "--device", "opengl", "-D", "TILE=8", "--json"});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_EQ(outcome.json()["programs"][0]["outcome"], "not stored");
  const std::string message = outcome.json()["programs"][0]["error"]["message"];
  EXPECT_TRUE(contains(message, cache().string())) << message;
}

TEST_F(CliCompile, CountsAFileThatIsGivenTwiceAsOneCompile) {
  if (!has_opencl()) GTEST_SKIP() << "there is no OpenCL device";
  const auto file = source_file("same.cl", "kernel void same(global int* x) { x[0] = 1; }\n");
  const auto outcome = kiln({"compile", file, file});
  EXPECT_EQ(outcome.status, 0);
  EXPECT_TRUE(contains(outcome.out, "1 compiled, 1 stored before, 0 failed")) << outcome.out;
}

TEST_F(CliCompile, AMissingCudaDriverIsToldWithArch) {
  if (open_device("cuda", quiet)) GTEST_SKIP() << "there is a CUDA device";
  const auto outcome = kiln({"compile", source_file("k.cu", "__global__ void k() {}\n")});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_TRUE(contains(outcome.error, "--arch sm_90")) << outcome.error;
}

TEST_F(CliCompile, KeepsAllEntryPointsOfAFileInOneEntry) {
  if (!has_opencl()) GTEST_SKIP() << "there is no OpenCL device";
  write_factor("1");
  const auto compiled = kiln({"compile", source_file("both.cl", two_kernels_), "--json"});
  ASSERT_EQ(compiled.status, 0) << compiled.error;
  EXPECT_EQ(compiled.json()["programs"][0]["entries"], (nlohmann::json{"twice", "half_of"}));
  EXPECT_EQ(kiln({"ls", "--json"}).json().size(), 1U);
  const auto shown = kiln({"show", "both"});
  EXPECT_TRUE(contains(line_with(shown.out, "entry points"), "all")) << shown.out;
  EXPECT_TRUE(contains(unwrapped(shown.out), (home_.path() / "factor.h").string())) << shown.out;
}

TEST_F(CliCompile, WhyNamesTheHeaderThatWasEdited) {
  if (!has_opencl()) GTEST_SKIP() << "there is no OpenCL device";
  write_factor("1");
  const auto file = source_file("both.cl", two_kernels_);
  ASSERT_EQ(kiln({"compile", file}).status, 0);
  EXPECT_EQ(kiln({"why", file}).status, 0);
  write_factor("3");
  const auto outcome = kiln({"why", file, "--json"});
  EXPECT_EQ(outcome.status, 1);
  const auto differences = outcome.json()["differences"];
  ASSERT_EQ(differences.size(), 1U) << differences.dump(2);
  EXPECT_EQ(differences[0]["field"], "header " + (home_.path() / "factor.h").string());
}

TEST_F(CliCompile, TakesAnOptionStringAsApplicationsPassIt) {
  if (!has_opencl()) GTEST_SKIP() << "there is no OpenCL device";
  fs::create_directory(home_.path() / "lib");
  write(home_.path() / "lib" / "value.h", "#define VALUE 5\n");
  const auto file = source_file("options.cl",
                                "#include TEXT(DIR/value.h)\n"
                                "kernel void options(global int* x) { x[0] = VALUE; }\n");
  const auto outcome =
      kiln({"compile", file,
            "--option=-D DIR=" + (home_.path() / "lib").string() + " -D XTEXT(x)=#x -D TEXT(x)=XTEXT(x) -w"});
  EXPECT_EQ(outcome.status, 0) << outcome.error;
}

TEST_F(CliCompile, ShowsTwentyIncludedFilesAndAllWithLong) {
  if (!has_opencl()) GTEST_SKIP() << "there is no OpenCL device";
  std::string source;
  for (int i = 0; i < 30; ++i) {
    const std::string name = "part" + std::to_string(i) + ".h";
    write(home_.path() / name, "// part\n");
    source += "#include \"" + name + "\"\n";
  }
  ASSERT_EQ(
      kiln({"compile", source_file("many.cl", source + "kernel void many(global int* x) { x[0] = 1; }\n")}).status,
      0);
  const auto shown = kiln({"show", "many"}).out;
  EXPECT_TRUE(contains(shown, "part19.h") && !contains(shown, "part20.h")) << shown;
  EXPECT_TRUE(contains(shown, "10 more files; --long lists them")) << shown;
  const auto all = kiln({"show", "many", "--long"}).out;
  EXPECT_TRUE(contains(all, "part29.h") && !contains(all, "more files")) << all;
}

TEST_F(CliCompile, ShowListsWhatEntryPointsTake) {
  if (!has_opencl()) GTEST_SKIP() << "there is no OpenCL device";
  const auto file = source_file("two.cl",
                                "kernel void saxpy(int n, float a, global const float* x, global float* y) {}\n"
                                "kernel void sum(local float* part, global float* y) {}\n");
  ASSERT_EQ(kiln({"compile", file, "--name", "reflected"}).status, 0);
  const auto text = kiln({"show", "reflected", "--reflect"});
  EXPECT_EQ(text.status, 0) << text.error;
  EXPECT_TRUE(contains(text.out, "saxpy takes")) << text.out;
  EXPECT_TRUE(contains(text.out, "local memory")) << text.out;
  const auto json = kiln({"show", "reflected", "--reflect", "--json"}).json();
  const auto& takes = json[0]["takes"];
  ASSERT_EQ(takes.size(), 2U);
  EXPECT_EQ(takes[0]["entry"], "saxpy");
  EXPECT_EQ(takes[0]["arguments"][1]["name"], "a");
  EXPECT_EQ(takes[0]["arguments"][1]["bytes"], 4);
  EXPECT_EQ(takes[0]["arguments"][3]["kind"], "buffer");
}

TEST_F(CliCompile, CompilesForAGpuThatIsNotPresent) {
  if (const auto nvrtc = backend::open_offline("sm_90", quiet); !nvrtc) GTEST_SKIP() << nvrtc.error().message();
  const auto file = source_file("scale.cu",
                                "#include <cuda_fp16.h>\n"
                                "template <class T> __global__ void scale(T* x, T by) { x[threadIdx.x] *= by; }\n");
  const Words words = {"compile",       file,     "--entry", "scale<float>", "--entry",
                       "scale<__half>", "--arch", "sm_90",   "--json"};
  const auto outcome = kiln(words);
  ASSERT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_EQ(outcome.json()["api"], "cuda");
  EXPECT_EQ(outcome.json()["programs"][0]["entries"], (nlohmann::json{"scale<float>", "scale<__half>"}));
  EXPECT_EQ(kiln(words).json()["programs"][0]["outcome"], "stored");
  EXPECT_EQ(kiln({"why", file, "--entry", "scale<float>", "--entry", "scale<__half>", "--arch", "sm_90"}).status,
            0);
  EXPECT_EQ(kiln({"why", file, "--entry", "scale<float>", "--entry", "scale<__half>", "--arch", "sm_80"}).status,
            1);
}

TEST_F(CliCompile, ShowsEntryPointsOnePerRow) {
  store(
      fire_gpu,
      Request(
          {.name = "two", .source = "x", .entries = {"scale<int, 2>", "add<float>"}, .language = Language::cuda}));
  const auto shown = kiln({"show", "two"}).out;
  EXPECT_TRUE(line_with(shown, "scale<int, 2>").ends_with(" scale<int, 2>")) << shown;
  EXPECT_TRUE(line_with(shown, "add<float>").starts_with("  entry point")) << shown;
}

TEST_F(CliCompile, OpensTheFirstDeviceThatTakesSpirv) {
  if (!open_device("opengl", quiet)) GTEST_SKIP() << "there is no OpenGL device";
  const auto file = source_file("double.spv", fakes::DoublingModule{}.bytes());
  // Vulkan's loader finds no driver.
  const Environment no_vulkan = {{"VK_ICD_FILENAMES", "/nowhere"}, {"VK_DRIVER_FILES", "/nowhere"}};
  const auto outcome = kiln({"compile", file, "--json"}, no_vulkan);
  ASSERT_TRUE(contains(outcome.out, "\"api\"")) << outcome.error;
  EXPECT_EQ(outcome.json()["api"], "opengl");
  Environment nothing = no_vulkan;
  nothing["__EGL_VENDOR_LIBRARY_FILENAMES"] = "/nowhere";
  nothing["OCL_ICD_VENDORS"] = "/nowhere";
  const auto failed = kiln({"compile", file}, nothing);
  EXPECT_EQ(failed.status, 1);
  for (const char* api : {"vulkan: ", "opengl: ", "opencl: "})
    EXPECT_TRUE(contains(failed.error, api)) << failed.error;
}

TEST_F(CliCompile, SaysHowToCompileForAnArchitectureWithASuffix) {
  const auto file = source_file("nothing.cu", "extern \"C\" __global__ void nothing() {}\n");
  const auto refused = kiln({"compile", file, "--arch", "sm_90a"});
  EXPECT_EQ(refused.status, 1);
  EXPECT_TRUE(contains(refused.error, "(--arch sm_90 --option=-arch=sm_90a)")) << refused.error;
  if (const auto nvrtc = backend::open_offline("sm_90", quiet); !nvrtc) GTEST_SKIP() << nvrtc.error().message();
  EXPECT_EQ(kiln({"compile", file, "--arch", "sm_90", "--option=-arch=sm_90a"}).status, 0);
  const auto other = kiln({"compile", source_file("first.cl", "kernel void first() {}\n"), "--arch", "sm_90"});
  EXPECT_EQ(other.status, 2);
  EXPECT_TRUE(contains(other.error, "--arch sm_90 selects a CUDA GPU, but the language is opencl")) << other.error;
}

TEST_F(CliCompile, RefusesArgumentsThatContradictEachOther) {
  const auto first = source_file("first.cl", "kernel void first() {}\n");
  const auto second = source_file("second.cu", "__global__ void second() {}\n");
  const auto compiled = source_file("third.cubin", "a cubin");
  for (const Words& words : {Words{"compile", first, first, "--name", "x"}, Words{"compile", first, second},
                             Words{"compile", first, "--device", "opengl"},
                             Words{"compile", second, "--arch", "sm_90", "--device", "cuda"},
                             Words{"compile", compiled, "--arch", "sm_90"}, Words{"compile", first, "-D", "=1"},
                             Words{"compile", first, "--language", "pascal"}, Words{"compile"}}) {
    const auto outcome = kiln(words);
    EXPECT_EQ(outcome.status, 2) << words.back() << ": " << outcome.error;
    EXPECT_FALSE(outcome.error.empty());
  }
  const auto unknown = kiln({"compile", second, "--arch", "sm_1"});
  EXPECT_EQ(unknown.status, 1) << unknown.error;
  EXPECT_TRUE(unknown.error.starts_with("kiln: ")) << unknown.error;
}

}  // namespace
}  // namespace kiln::cli
