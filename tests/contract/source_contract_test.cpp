#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include <kiln/cuda.hpp>

#include "backend/cuda/image.hpp"
#include "backend/quirks/mesa_spirv_binary.hpp"
#include "backend/vulkan/shaderc.hpp"
#include "backend/vulkan/spirv.hpp"
#include "backend/vulkan_modules.hpp"
#include "base/dynamic_library.hpp"
#include "contract/contract.hpp"
#include "fakes/files.hpp"

// Programs that were not written for Kiln: with headers, several entry points, or compiled already.
namespace kiln::contract {
namespace {

/// A program in the device's own language that adds AMOUNT, which amount.h defines, to every number of its buffer.
Request::Fields adding(Language language) {
  switch (language) {
    case Language::glsl:
    case Language::vulkan_glsl:
      return {.name = "add",
              .source =
                  "#version 450\n#include \"amount.h\"\nlayout(local_size_x = 64) in;\n"
                  "layout(std430, binding = 0) buffer Data { float data[]; };\n"
                  "void main() { data[gl_GlobalInvocationID.x] += AMOUNT; }\n",
              .language = language};
    case Language::opencl:
      return {.name = "add",
              .source =
                  "#include \"amount.h\"\n__kernel void add(__global float* data) {\n"
                  "  data[get_global_id(0)] += AMOUNT;\n}\n",
              .language = language};
    default:
      return {.name = "add",
              .source =
                  "#include \"amount.h\"\n__global__ void add(float* data) {\n"
                  "  data[blockIdx.x * blockDim.x + threadIdx.x] += AMOUNT;\n}\n",
              .language = language};
  }
}

/// What a program makes of 64 zeros, of which it must make the same number; -1 if it does not.
float result_of(Device& device, Module& module) {
  const auto buffer = upload(device, std::vector<float>(64, 0.0F)).value();
  const Launch launch{.groups = {1, 1, 1}, .group_size = {64, 1, 1}, .arguments = {buffer.get()}};
  device.launch(module, launch).value();
  const auto numbers = download<float>(device, *buffer).value();
  return std::ranges::all_of(numbers, [&](float number) { return number == numbers[0]; }) ? numbers[0] : -1;
}

class SourceContract : public Contract {
 protected:
  Language language() const { return device_->info().language; }
  bool is_glsl() const { return language() == Language::glsl || language() == Language::vulkan_glsl; }
  std::filesystem::path headers() const { return folder_.path() / "include"; }
  Request::Fields fields() const {
    Request::Fields fields = adding(language());
    fields.include_folders = {headers()};
    return fields;
  }
  /// Whether the driver returns binaries of SPIR-V.
  bool is_stored() const {
    const Identity& identity = device_->identity();
    return identity.api != "opengl" ||
           !backend::quirks::MesaSpirvBinary::affects(identity.vendor + identity.driver);
  }
  float run(Cache& cache, const Request& request) const {
    return result_of(*device_, cache.get(request).value().module());
  }
};

TEST_P(SourceContract, AnEditedHeaderIsCompiledAgainAndATouchedOneIsNot) {
  fakes::write_file(headers() / "amount.h", "#include \"deep/value.h\"\n#define AMOUNT VALUE\n");
  fakes::write_file(headers() / "deep/value.h", "#define VALUE 2.0f\n");
  Cache cache(device_, options());
  EXPECT_EQ(run(cache, Request(fields())), 2);
  fakes::write_file(headers() / "deep/value.h", "#define VALUE 2.0f\n");
  EXPECT_EQ(run(cache, Request(fields())), 2);
  EXPECT_EQ(cache.stats().compiles, 1U);
  fakes::write_file(headers() / "deep/value.h", "#define VALUE 3.0f\n");
  EXPECT_EQ(run(cache, Request(fields())), 3);
  EXPECT_EQ(cache.stats().compiles, 2U);
  // A file that is found first hides the other one.
  fakes::write_file(folder_.path() / "first/amount.h", "#define AMOUNT 4.0f\n");
  Request::Fields hidden = fields();
  hidden.include_folders.insert(hidden.include_folders.begin(), folder_.path() / "first");
  EXPECT_EQ(run(cache, Request(hidden)), 4);
  EXPECT_EQ(cache.stats().compiles, 3U);
}

TEST_P(SourceContract, TheSameTreeElsewhereIsTheSameProgram) {
  Request::Fields here = fields();
  fakes::write_file(headers() / "amount.h", "#pragma once\n#include \"other.h\"\n");
  fakes::write_file(headers() / "other.h", "#pragma once\n#include \"amount.h\"\n#define AMOUNT 5.0f\n");
  std::filesystem::copy(headers(), folder_.path() / "else where's, \"copy\"");
  Request::Fields elsewhere = here;
  elsewhere.include_folders = {folder_.path() / "else where's, \"copy\""};
  EXPECT_EQ(Request(here).key().digest, Request(elsewhere).key().digest);
  Cache cache(device_, options());
  EXPECT_EQ(run(cache, Request(elsewhere)), 5) << "the compiler gets a folder with such a name";
  EXPECT_EQ(run(cache, Request(here)), 5);
  EXPECT_EQ(cache.stats().compiles, 1U);
}

TEST_P(SourceContract, HeadersAreGivenAsText) {
  Request::Fields given = adding(language());
  given.headers = {{"amount.h", "#include \"lib/value.h\"\n"}, {"lib/value.h", "#define AMOUNT 6.0f\n"}};
  Cache cache(device_, options());
  EXPECT_EQ(run(cache, Request(given)), 6);
}

TEST_P(SourceContract, NamesThatMacrosComputeAreFollowed) {
  if (is_glsl()) GTEST_SKIP() << "GLSL has none";
  fakes::write_file(headers() / "seven.h", "#define AMOUNT 7.0f\n");
  Request::Fields computed = fields();
  computed.source.replace(0, computed.source.find('\n'),
                          "#if __has_include(<seven.h>)\n#define HEADER(x) <x.h>\n#include HEADER(seven)\n#else\n"
                          "#define AMOUNT 1.0f\n#endif");
  Cache cache(device_, options());
  EXPECT_EQ(run(cache, Request(computed)), 7);
  fakes::write_file(headers() / "seven.h", "#define AMOUNT 8.0f\n");
  EXPECT_EQ(run(cache, Request(computed)), 8);
  std::filesystem::remove(headers() / "seven.h");
  EXPECT_EQ(run(cache, Request(computed)), 1);
}

TEST_P(SourceContract, AMissingHeaderIsNamed) {
  const auto missing = Cache(device_, options()).get(Request(fields()));
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code(), ErrorCode::include_not_found) << missing.error().describe();
  EXPECT_NE(missing.error().message().find("amount.h"), std::string::npos) << missing.error().message();
  EXPECT_NE(missing.error().message().find(headers().string()), std::string::npos) << missing.error().message();
}

TEST_P(SourceContract, AnErrorInAHeaderNamesItAndItsLine) {
  fakes::write_file(headers() / "amount.h", "#define AMOUNT 1.0f\n\nthis is no declaration;\n");
  const auto wrong = Cache(device_, options()).get(Request(fields()));
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().code(), ErrorCode::compile_failed);
  // Mesa may attribute an error in an included file to the source.
  if (language() == Language::glsl) return;
  EXPECT_NE(wrong.error().message().find("amount.h line 3"), std::string::npos) << wrong.error().describe();
  // The compiler gets a folder with such a name through a link.
  const auto quoted = folder_.path() / "else where's";
  std::filesystem::copy(headers(), quoted);
  Request::Fields elsewhere = fields();
  elsewhere.include_folders = {quoted};
  const auto linked = Cache(device_, options()).get(Request(elsewhere));
  ASSERT_FALSE(linked);
  EXPECT_NE(linked.error().message().find("amount.h line 3"), std::string::npos) << linked.error().describe();
  if (is_glsl()) return;
  EXPECT_NE(linked.error().log().find((quoted / "amount.h").string()), std::string::npos) << linked.error().log();
}

TEST_P(SourceContract, SeveralEntryPointsAreOneCompileAndOneEntryOnDisk) {
  if (is_glsl()) GTEST_SKIP() << "GLSL has one";
  const bool opencl = language() == Language::opencl;
  std::string source;
  for (const char* number : {"1", "2", "3", "4"})
    source += opencl ? std::string("__kernel void add_") + number +
                           "(__global float* data) { data[get_global_id(0)] += " + number + "; }\n"
                     : std::string("__global__ void add_") + number +
                           "(float* data) { data[threadIdx.x] += " + number + "; }\n";
  for (const std::vector<std::string>& entries :
       {std::vector<std::string>{"add_1", "add_2", "add_3", "add_4"}, std::vector<std::string>{}}) {
    const Request request(
        {.name = entries.empty() ? "all" : "named", .source = source, .entries = entries, .language = language()});
    for (const bool again : {false, true}) {
      Cache cache(device_, options());
      const Program program = cache.get(request).value();
      EXPECT_EQ(program.origin(), again ? Origin::disk : Origin::compiled);
      EXPECT_EQ(cache.stats().compiles, again ? 0U : 1U);
      for (const int number : {4, 3, 2, 1}) {
        const Program entry = program.entry("add_" + std::to_string(number)).value();
        EXPECT_EQ(result_of(*device_, entry.module()), static_cast<float>(number));
        EXPECT_EQ(entry.key().digest, program.key().digest);
      }
      const auto none = program.entry("add_5");
      ASSERT_FALSE(none);
      EXPECT_EQ(none.error().code(), ErrorCode::invalid_request);
      for (const char* entry : {"add_1", "add_2", "add_3", "add_4"})
        EXPECT_NE(none.error().message().find(entry), std::string::npos) << none.error().message();
      const auto unchosen = device_->launch(program.module(), {});
      ASSERT_FALSE(unchosen);
      EXPECT_NE(
          unchosen.error().message().find("has 4 entry points; choose one with Program::entry() or Step::entry"),
          std::string::npos)
          << unchosen.error().message();
    }
  }
  std::size_t stored = 0;
  for (const auto& folder : std::filesystem::directory_iterator(options().directory))
    if (folder.is_directory())
      for (const auto& file : std::filesystem::directory_iterator(folder))
        stored += file.path().extension() == ".bin";
  EXPECT_EQ(stored, 2U) << "one for each request";
}

TEST_P(SourceContract, AnEntryPointThatIsNotThereIsACompileError) {
  if (is_glsl()) GTEST_SKIP() << "GLSL has one";
  fakes::write_file(headers() / "amount.h", "#define AMOUNT 1.0f\n");
  Request::Fields wrong = fields();
  wrong.entries = {"subtract"};
  const auto missing = Cache(device_, options()).get(Request(wrong));
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code(), ErrorCode::compile_failed);
  EXPECT_NE(missing.error().message().find("subtract"), std::string::npos) << missing.error().message();
}

TEST_P(SourceContract, TemplatesAreInstantiatedByName) {
  if (language() != Language::cuda && language() != Language::hip) GTEST_SKIP() << "the language has none";
  const Request request({.name = "templates",
                         .source = "namespace math { template <class T, int n> __global__ void add(T* data) {\n"
                                   "  data[threadIdx.x] += n; } }\n",
                         .entries = {"math::add<float, 3>", "math::add<float, 5>"},
                         .language = language()});
  for (const bool again : {false, true}) {
    Cache cache(device_, options());
    const Program program = cache.get(request).value();
    EXPECT_EQ(program.origin(), again ? Origin::disk : Origin::compiled);
    EXPECT_EQ(result_of(*device_, program.entry("math::add<float, 3>").value().module()), 3);
    EXPECT_EQ(result_of(*device_, program.entry("math::add<float, 5>").value().module()), 5);
  }
}

/// The SPIR-V of a program that adds 9, for Vulkan or OpenGL.
std::vector<std::uint32_t> spirv(Language language) {
  Request::Fields fields = adding(Language::vulkan_glsl);
  fields.headers = {{"amount.h", "#define AMOUNT 9.0f\n"}};
  const Request request(fields);
  const auto shaderc = vulkan::Shaderc::find().value();
  auto words = shaderc->compile(request).value().words;
  if (language != Language::glsl) return words;
  // Kiln compiles for Vulkan only; the library that it has loaded can do more.
  const auto library = base::DynamicLibrary::loaded("libkiln_shaderc.so.0");
  const auto functions = library.function<const vulkan::ShadercFunctions*()>("kiln_shaderc_functions");
  if (functions == nullptr) return words;
  const vulkan::ShadercFunctions& call = *functions();
  shaderc_compiler_t compiler = call.compiler_initialize();
  shaderc_compile_options_t options = call.compile_options_initialize();
  call.compile_options_set_target_env(options, shaderc_target_env_opengl, shaderc_env_version_opengl_4_5);
  shaderc_compilation_result_t result =
      call.compile_into_spv(compiler, request.source().data(), request.source().size(), shaderc_glsl_compute_shader,
                            "add", "main", options);
  words =
      vulkan::spirv_words(std::as_bytes(std::span(call.result_get_bytes(result), call.result_get_length(result))));
  call.result_release(result);
  call.compile_options_release(options);
  call.compiler_release(compiler);
  return words;
}

std::string bytes_of(const std::vector<std::uint32_t>& words) {
  return {reinterpret_cast<const char*>(words.data()), 4 * words.size()};
}

TEST_P(SourceContract, SpirvRunsWhereTheDeviceTakesIt) {
  if (!is_glsl()) GTEST_SKIP() << "the device takes none";
  const Request request({.name = "spirv", .source = bytes_of(spirv(language())), .language = Language::spirv});
  ASSERT_FALSE(request.error());
  for (const bool again : {false, true}) {
    Cache cache(device_, options());
    const Program program = cache.get(request).value();
    EXPECT_EQ(program.origin(), again && is_stored() ? Origin::disk : Origin::compiled);
    EXPECT_EQ(result_of(*device_, program.module()), 9);
    EXPECT_EQ(result_of(*device_, program.entry("main").value().module()), 9);
  }
}

TEST_P(SourceContract, SpirvHasConstantsThatTheRequestSets) {
  if (!is_glsl()) GTEST_SKIP() << "the device takes no SPIR-V of this kind";
  const fakes::DoublingModule module{.factor_id = 3};
  const auto made = [&](std::map<std::uint32_t, Constant> constants) {
    return device_->compile(Request({.name = "factor",
                                     .source = module.bytes(),
                                     .language = Language::spirv,
                                     .constants = std::move(constants)}));
  };
  for (const std::uint32_t factor : {2U, 5U}) {
    const auto compiled =
        made(factor == 2 ? std::map<std::uint32_t, Constant>{} : std::map<std::uint32_t, Constant>{{3, factor}});
    ASSERT_TRUE(compiled) << compiled.error().describe();
    const auto numbers = upload(*device_, std::vector<std::uint32_t>(64, 7)).value();
    device_->launch(*compiled->module, {.arguments = {*numbers}}).value();
    EXPECT_EQ(download<std::uint32_t>(*device_, *numbers).value(), std::vector<std::uint32_t>(64, 7 * factor));
  }
  EXPECT_EQ(made({{4, 1U}}).error().message(), "factor has no specialisation constant with the id 4; it has 3");
  EXPECT_EQ(made({{3, 1.0F}}).error().code(), ErrorCode::invalid_request);
}

TEST_P(SourceContract, SpirvHasOtherEntryPointsThanMain) {
  if (!is_glsl()) GTEST_SKIP() << "the device takes no SPIR-V";
  // OpEntryPoint GLCompute %function "main" …, once more under another name.
  std::vector<std::uint32_t> words = spirv(language());
  const std::uint32_t main_word = 0x6e69616d;
  const auto name = std::ranges::find(words, main_word);
  ASSERT_NE(name, words.end());
  const auto begin = name - 3;
  std::vector<std::uint32_t> second(begin, begin + (*begin >> 16));
  second[3] = 0x32646461;  // "add2"
  words.insert(begin + static_cast<std::ptrdiff_t>(second.size()), second.begin(), second.end());
  for (const bool again : {false, true}) {
    Cache cache(device_, options());
    const Program one =
        cache
            .get(Request(
                {.name = "one", .source = bytes_of(words), .entries = {"add2"}, .language = Language::spirv}))
            .value();
    EXPECT_EQ(one.origin(), again && is_stored() ? Origin::disk : Origin::compiled);
    EXPECT_EQ(result_of(*device_, one.module()), 9);
    EXPECT_TRUE(one.entry("add2"));
    EXPECT_FALSE(one.entry("main"));
    const auto all = cache.get(Request({.name = "all", .source = bytes_of(words), .language = Language::spirv}));
    if (language() == Language::glsl) {
      ASSERT_FALSE(all) << "a program object has one entry point";
      EXPECT_EQ(all.error().code(), ErrorCode::invalid_request);
      continue;
    }
    EXPECT_EQ(result_of(*device_, all.value().entry("main").value().module()), 9);
    EXPECT_EQ(result_of(*device_, all.value().entry("add2").value().module()), 9);
    EXPECT_FALSE(device_->launch(all.value().module(), {}));
  }
}

TEST_P(SourceContract, SpirvThatIsDamagedNeverReachesTheDriver) {
  const std::vector<std::uint32_t> words = spirv(language());
  Cache cache(device_, options());
  const auto refused = [&](const std::string& bytes) {
    const auto result =
        cache.get(Request({.name = "spirv", .source = bytes, .entries = {"main"}, .language = Language::spirv}));
    return !result && !result.error().message().empty();
  };
  for (std::size_t size = 4; size < 4 * words.size(); size += 37)
    EXPECT_TRUE(refused(bytes_of(words).substr(0, size)));
  EXPECT_TRUE(refused("no SPIR-V at all"));
  auto bad = words;
  bad[words.size() / 2] = 0xffffffff;
  EXPECT_TRUE(refused(bytes_of(bad)));
}

TEST_P(SourceContract, ProgramsOfOtherMakersAreRefusedByName) {
  Cache cache(device_, options());
  for (const Language other :
       {Language::ptx, Language::cubin, Language::fatbin, Language::code_object, Language::spirv}) {
    const auto result =
        cache.get(Request({.name = "other", .source = "nonsense", .entries = {"add"}, .language = other}));
    ASSERT_FALSE(result) << to_string(other);
    EXPECT_NE(result.error().message().find("other"), std::string::npos) << result.error().message();
  }
}

TEST_P(SourceContract, PtxAndCubinsRun) {
  if (language() != Language::cuda) GTEST_SKIP() << "the device takes none";
  Request::Fields source = adding(language());
  source.headers = {{"amount.h", "#define AMOUNT 11.0f\n"}};
  const Binary binary = cuda::compile_for(Request(source), device_->info().traits.architecture).value();
  const auto cubin = cuda::parts_of(binary, cuda::ImageKind::cubin).value().image;
  const Request given({.name = "given",
                       .source = std::string(reinterpret_cast<const char*>(cubin.data()), cubin.size()),
                       .language = Language::cubin});
  const std::string ptx = R"(.version 7.0
.target sm_50
.address_size 64
.visible .entry add(.param .u64 data) {
  .reg .b64 %a<4>; .reg .b32 %i; .reg .f32 %f;
  ld.param.u64 %a1, [data];
  cvta.to.global.u64 %a2, %a1;
  mov.u32 %i, %tid.x;
  mul.wide.u32 %a3, %i, 4;
  add.s64 %a3, %a2, %a3;
  ld.global.f32 %f, [%a3];
  add.f32 %f, %f, 0f41500000;
  st.global.f32 [%a3], %f;
  ret;
}
)";
  for (const bool again : {false, true}) {
    Cache cache(device_, options());
    EXPECT_EQ(run(cache, given), 11);
    const Program text = cache.get(Request({.name = "text", .source = ptx, .language = Language::ptx})).value();
    EXPECT_EQ(text.origin(), again ? Origin::disk : Origin::compiled);
    EXPECT_EQ(result_of(*device_, text.module()), 13);
    EXPECT_FALSE(cache.get(Request({.name = "wrong",
                                    .source = ptx.substr(0, ptx.find("ret;")) + "nonsense;\n}\n",
                                    .language = Language::ptx})));
  }
}

TEST_P(SourceContract, StoredProgramsNeedNoCompilerInTheProcess) {
  if (GetParam() != "vulkan") GTEST_SKIP() << "the driver has the compiler";
  fakes::write_file(headers() / "amount.h", "#define AMOUNT 1.0f\n");
  if (const char* folder = std::getenv(handed_down); folder != nullptr) {
    Request::Fields stored = adding(language());
    stored.headers = {{"amount.h", "#define AMOUNT 1.0f\n"}};
    CacheOptions options = this->options();
    options.directory = folder;
    Cache cache(device_, options);
    ASSERT_EQ(cache.get(Request(stored)).value().origin(), Origin::disk);
    ASSERT_EQ(fakes::read_file("/proc/self/maps").find("libkiln_shaderc"), std::string::npos);
    std::ofstream(options.directory / "found");
    return;
  }
  {
    Request::Fields stored = adding(language());
    stored.headers = {{"amount.h", "#define AMOUNT 1.0f\n"}};
    Cache cache(device_, options());
    ASSERT_TRUE(cache.get(Request(stored)));
  }
  EXPECT_EQ(run_this_test_elsewhere(options().directory), 0);
  EXPECT_TRUE(std::filesystem::exists(options().directory / "found"));
}

INSTANTIATE_TEST_SUITE_P(Apis, SourceContract, every_api(), name_of);

}  // namespace
}  // namespace kiln::contract
