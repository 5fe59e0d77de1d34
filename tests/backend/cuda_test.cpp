#include <gtest/gtest.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <random>
#include <thread>

#include <elf.h>

#include "backend/compile_workers.hpp"
#include "backend/cuda/cuda.hpp"
#include "backend/cuda_samples.hpp"
#include "backend/sections.hpp"
#include "contract/kernels.hpp"
#include "fakes/files.hpp"
#include "fakes/temporary_folder.hpp"

namespace kiln {
namespace {

using cuda::ImageKind;
using fakes::cuda_scale;

/// NVRTC, which compiles for GPUs that are not here.
class Nvrtc : public testing::Test {
 protected:
  void SetUp() override {
    auto rtc = cuda::open_nvrtc(INT_MAX);
    if (!rtc) GTEST_SKIP() << rtc.error().message();
    rtc_ = std::move(*rtc);
  }
  Result<cuda::Image> compile_image(const Request& request, int capability = 90) const {
    const auto target = cuda::target_for(capability, 13000, rtc_->architectures());
    if (!target) return target.error();
    return cuda::compile_image(cuda::platform(), *rtc_, *target, request);
  }
  Result<std::vector<std::byte>> compile(const Request& request, int capability = 90) const {
    auto image = compile_image(request, capability);
    if (!image) return std::move(image).error();
    return std::move(image->bytes);
  }
  Error compile_error(Request::Fields fields) const {
    fields.language = Language::cuda;
    auto result = compile(Request(std::move(fields)));
    EXPECT_FALSE(result);
    return result ? Error(ErrorCode::io, "compiled") : std::move(result).error();
  }

  std::shared_ptr<const cuda::Rtc> rtc_;
};

TEST_F(Nvrtc, CompilesForTwoArchitectures) {
  EXPECT_TRUE(rtc_->version().starts_with("NVRTC 1")) << rtc_->version();
  const auto hopper = compile(cuda_scale(3), 90).value();
  const auto ampere = compile(cuda_scale(3), 80).value();
  EXPECT_TRUE(cuda::is_whole(hopper, ImageKind::cubin));
  EXPECT_TRUE(cuda::is_whole(ampere, ImageKind::cubin));
  EXPECT_NE(hopper, ampere);
}

TEST_F(Nvrtc, GivesTheSameImageEveryTime) {
  EXPECT_EQ(compile(cuda_scale(3)).value(), compile(cuda_scale(3)).value());
}

TEST_F(Nvrtc, GivesPtxForAnArchitectureYetToCome) {
  const auto text = compile(cuda_scale(3), 990).value();
  EXPECT_TRUE(cuda::is_whole(text, ImageKind::ptx));
  EXPECT_FALSE(cuda::is_whole(text, ImageKind::cubin));
  EXPECT_FALSE(cuda::is_whole(std::span(text).first(text.size() - 1), ImageKind::ptx)) << "nothing ends it";
  EXPECT_FALSE(cuda::is_whole(std::span(text).first(text.size() / 2), ImageKind::ptx));
}

TEST_F(Nvrtc, GivesPtxWithLineInformationForAnArchitectureYetToCome) {
  for (const char* option : {"-lineinfo", "--generate-line-info", "-G"}) {
    Request::Fields fields{.name = "four",
                           .source = "extern \"C\" __global__ void scale(float* data) { *data *= 2; }\n",
                           .language = Language::cuda,
                           .options = {option}};
    const auto image = compile_image(Request(std::move(fields)), 990);
    ASSERT_TRUE(image) << option << ": " << image.error().describe();
    EXPECT_EQ(image->entries, (std::vector<cuda::EntryPoint>{{"scale", "scale"}})) << option;
    EXPECT_TRUE(cuda::parts_of(cuda::to_binary(ImageKind::ptx, *image, "four"), ImageKind::ptx)) << option;
  }
}

TEST_F(Nvrtc, CompilesEveryWordOfTheDialectAndNativeAtomicsBesideThem) {
  for (const Kernel& kernel : {contract::words(), contract::native_atomics()}) {
    const auto image = compile(kernel.request(Language::cuda).value());
    EXPECT_TRUE(image) << image.error().describe();
  }
}

TEST_F(Nvrtc, ErrorsInWhatIsDeclaredForAKernelNameTheDeclaration) {
  Kernel broken = contract::scale(3);
  broken.shared = {{"tile", Type::f32, {"TILES"}}};
  const auto result = compile(broken.request(Language::cuda).value());
  ASSERT_FALSE(result);
  EXPECT_TRUE(result.error().message().starts_with(
      "scale_3 does not compile, in the line that Kiln generated, \"__shared__ float tile[TILES];\": error: "))
      << result.error().describe();
}

TEST_F(Nvrtc, ErrorsNameTheLineAndCarryTheLog) {
  const Error error = compile_error(
      {.name = "conv", .source = "\nextern \"C\" __global__ void conv() { nonsense; }\n", .entries = {"conv"}});
  EXPECT_EQ(error.code(), ErrorCode::compile_failed);
  EXPECT_TRUE(error.message().starts_with("conv does not compile, line 2: error: ")) << error.message();
  EXPECT_NE(error.log().find("nonsense"), std::string::npos) << error.log();
}

TEST_F(Nvrtc, ErrorsInAnIncludedFileNameThatFile) {
  const Error error = compile_error({.name = "conv",
                                     .source = "#include \"tile.h\"\nextern \"C\" __global__ void conv() {}\n",
                                     .entries = {"conv"},
                                     .defines = {{"A", "1"}, {"B", "2"}},
                                     .headers = {{"tile.h", "\n\nint tile = nonsense;\n"}}});
  EXPECT_NE(error.message().find("tile.h line 3"), std::string::npos) << error.message();
}

TEST_F(Nvrtc, AnOptionItDoesNotKnowIsACompileError) {
  const Error error = compile_error({.name = "conv",
                                     .source = "extern \"C\" __global__ void conv() {}\n",
                                     .entries = {"conv"},
                                     .options = {"--no-such-option"}});
  EXPECT_EQ(error.code(), ErrorCode::compile_failed);
  EXPECT_NE(error.describe().find("no-such-option"), std::string::npos) << error.describe();
}

TEST_F(Nvrtc, PassesOptionsOn) {
  Request::Fields fields{.name = "conv",
                         .source = "extern \"C\" __global__ void conv(float* x) { *x = sinf(*x); }\n",
                         .entries = {"conv"},
                         .language = Language::cuda};
  const auto plain = compile(Request(fields)).value();
  fields.options = {"--use_fast_math", "--std=c++17"};
  EXPECT_NE(compile(Request(fields)).value(), plain);
  fields.options = {"--gpu-architecture=sm_80"};
  EXPECT_EQ(compile(Request(fields), 90).value(), compile(Request(fields), 80).value());
  fields.options = {"--gpu-architecture=compute_80"};
  EXPECT_EQ(compile(Request(fields)).error().code(), ErrorCode::compile_failed) << "that is no code";
}

TEST_F(Nvrtc, RefusesOtherLanguagesAndSourcesWithoutAKernel) {
  EXPECT_EQ(compile(cuda_scale(3, Language::hip)).error().code(), ErrorCode::invalid_request);
  EXPECT_EQ(compile_error({.name = "conv", .source = "__device__ int x;"}).code(), ErrorCode::compile_failed);
}

constexpr const char* four_kernels = R"(
namespace math {
template <class T, int factor> __global__ void scale(T* data) { data[threadIdx.x] *= factor; }
__global__ void add(float* data) { data[threadIdx.x] += 1; }
}
__global__ void add(double* data) { data[threadIdx.x] += 2; }
extern "C" __global__ void plain(float* data) { data[threadIdx.x] = 3; }
)";

TEST_F(Nvrtc, CompilesSeveralEntryPointsAndTemplatesAtOnce) {
  const std::vector<std::string> names = {"math::scale<float, 2>", "math::scale<double, 3>", "math::add", "::add",
                                          "plain"};
  const auto image = compile_image(
      Request({.name = "four", .source = four_kernels, .entries = names, .language = Language::cuda}));
  ASSERT_TRUE(image) << image.error().describe();
  ASSERT_EQ(image->entries.size(), names.size());
  const auto all = cuda::entry_points(image->bytes, ImageKind::cubin);
  for (std::size_t i = 0; i < names.size(); ++i) {
    EXPECT_EQ(image->entries[i].name, names[i]);
    EXPECT_TRUE(std::ranges::any_of(all, [&](const auto& entry) {
      return entry.symbol == image->entries[i].symbol;
    })) << image->entries[i].symbol;
    EXPECT_TRUE(cuda::argument_sizes(image->bytes, ImageKind::cubin, image->entries[i].symbol));
  }
  EXPECT_EQ(image->entries[4].symbol, "plain");
}

TEST_F(Nvrtc, FindsAllKernelsOfASourceThatNamesNone) {
  const Request request({.name = "four", .source = four_kernels, .language = Language::cuda});
  for (const int capability : {90, 990}) {
    const auto image = compile_image(request, capability).value();
    std::vector<std::string> names;
    for (const auto& entry : image.entries) names.push_back(entry.name);
    std::ranges::sort(names);
    EXPECT_EQ(names, (std::vector<std::string>{"add", "math::add", "plain"}));
  }
}

TEST_F(Nvrtc, AnEntryThatIsNotInTheSourceIsACompileErrorThatNamesIt) {
  for (const char* entry : {"nothing", "math::scale", "math::scale<float>", "math::nothing<3>", "threadIdx"}) {
    const Error error = compile_error({.name = "four", .source = four_kernels, .entries = {"plain", entry}});
    EXPECT_EQ(error.code(), ErrorCode::compile_failed);
    EXPECT_TRUE(error.message().starts_with(std::string("four has no kernel called ") + entry)) << error.message();
  }
}

TEST_F(Nvrtc, AnEntryThatIsNotInTheSourceIsNamedAlsoAfterAWarning) {
  const Error error = compile_error(
      {.name = "conv", .source = "__global__ void conv() { int unused; }\n", .entries = {"convolve"}});
  EXPECT_EQ(error.code(), ErrorCode::compile_failed);
  EXPECT_TRUE(error.message().starts_with("conv has no kernel called convolve; ")) << error.message();
  EXPECT_NE(error.log().find("unused"), std::string::npos) << error.log();
}

TEST_F(Nvrtc, AnErrorInTheSourceComesBeforeAnEntryThatIsNotInIt) {
  const Error error = compile_error(
      {.name = "conv", .source = "\n__global__ void conv() { nonsense; }\n", .entries = {"convolve"}});
  EXPECT_TRUE(error.message().starts_with("conv does not compile, line 2: error: ")) << error.message();
}

TEST_F(Nvrtc, AnOverloadedEntryIsSelectedByACast) {
  Request::Fields fields{.name = "two",
                         .source =
                             "__global__ void add(int* data) { ++*data; }\n"
                             "__global__ void add(float* data) { int unused; ++*data; }\n",
                         .entries = {"add"},
                         .language = Language::cuda};
  const auto ambiguous = compile(Request(fields));
  ASSERT_FALSE(ambiguous);
  EXPECT_EQ(ambiguous.error().code(), ErrorCode::compile_failed);
  EXPECT_EQ(ambiguous.error().message(),
            "two has several kernels called add; select one by a cast, as in (void(*)(int*))add");
  fields.entries = {"(void(*)(int*))add"};
  const auto image = compile_image(Request(fields));
  ASSERT_TRUE(image) << image.error().describe();
  EXPECT_EQ(image->entries, (std::vector<cuda::EntryPoint>{{fields.entries[0], "_Z3addPi"}}));
}

TEST_F(Nvrtc, AKernelMayShareItsNameWithFunctionsThatAreNone) {
  for (const char* linkage : {"", "extern \"C\" "}) {
    const auto image = compile_image(
        Request({.name = "shared",
                 .source = "__device__ float twice(float x) { return 2 * x; }\n" + std::string(linkage) +
                           "__global__ void twice(float* data) { *data = twice(*data); }\n"
                           "template <class T> __global__ void set(T* data) { *data = 1; }\n",
                 .entries = {"set<int>", "twice"},
                 .language = Language::cuda}));
    ASSERT_TRUE(image) << image.error().describe();
    EXPECT_EQ(image->entries[0].symbol, "_Z3setIiEvPT_");
    EXPECT_EQ(image->entries[1].symbol, *linkage != '\0' ? "twice" : "_Z5twicePf");
  }
}

TEST_F(Nvrtc, CompilesOnFourThreadsAtOnce) {
  std::vector<std::vector<std::byte>> images(4);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < images.size(); ++t)
    threads.emplace_back([&, t] { images[t] = compile(cuda_scale(static_cast<int>(t) + 2)).value(); });
  for (std::thread& thread : threads) thread.join();
  for (std::size_t t = 0; t < images.size(); ++t)
    EXPECT_EQ(images[t], compile(cuda_scale(static_cast<int>(t) + 2)).value()) << t;
}

TEST_F(Nvrtc, AWorkerGivesTheSameImageAndTheSameErrors) {
  ASSERT_NE(rtc_->places(), nullptr);
  fakes::TemporaryFolder folder;
  fakes::write_file(folder.path() / "three.h", "#define THREE 3\n");
  const Request scale(
      {.name = "scale",
       .source = "#include \"three.h\"\ntemplate <class T> __global__ void scale(T* x) { *x *= THREE; }",
       .entries = {"scale<float>", "scale<double>"},
       .language = Language::cuda,
       .include_folders = {folder.path()}});
  const Request wrong(
      {.name = "wrong", .source = "__global__ void f() { int x = y; }", .language = Language::cuda});
  const auto here = compile_image(scale).value();
  const auto error_here = compile_image(wrong).error();

  // While this place in the process is taken, others are in workers.
  const auto taken = rtc_->places()->wait(Urgency::background);
  const auto place = rtc_->places()->wait(Urgency::background);
  ASSERT_EQ(rtc_->places()->workers(), 0U);
  const auto there = compile_image(scale).value();
  EXPECT_EQ(rtc_->places()->workers(), 1U) << "compiled in this process";
  EXPECT_EQ(there.bytes, here.bytes);
  ASSERT_EQ(there.entries.size(), 2U);
  for (std::size_t i = 0; i < 2; ++i) EXPECT_EQ(there.entries[i].symbol, here.entries[i].symbol);
  const auto error_there = compile_image(wrong).error();
  EXPECT_EQ(error_there.message(), error_here.message());
  EXPECT_EQ(error_there.log(), error_here.log());
}

TEST_F(Nvrtc, NoTruncatedImageIsTakenForAWholeOne) {
  const auto image = compile(cuda_scale(3)).value();
  for (std::size_t size = 0; size < image.size(); size += 7) {
    // A copy, so that a reader past its end is caught.
    const std::vector<std::byte> part(image.begin(), image.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_FALSE(cuda::is_whole(part, ImageKind::cubin)) << size;
  }
}

TEST_F(Nvrtc, ChangedBytesNeverCrashTheChecker) {
  const Binary binary = cuda::to_binary(ImageKind::cubin, compile_image(cuda_scale(3)).value(), "scale_3");
  std::mt19937 random(1);
  std::size_t refused = 0;
  for (int round = 0; round < 20000; ++round) {
    Binary changed = binary;
    for (int i = 0; i < 3; ++i) {
      // Mostly in the header and the tables at the end, where the numbers are.
      const std::size_t at = random() % 2 == 0 ? random() % 80 : random() % changed.bytes.size();
      changed.bytes[at] = static_cast<std::byte>(random() & 0xff);
    }
    if (random() % 4 == 0) changed.bytes.resize(random() % changed.bytes.size());
    const auto parts = cuda::parts_of(changed, ImageKind::cubin);
    if (parts) continue;
    ++refused;
    ASSERT_EQ(parts.error().code(), ErrorCode::load_failed);
  }
  EXPECT_GT(refused, 5000U);
}

TEST_F(Nvrtc, ABinaryComesApartIntoWhatItWasMadeOf) {
  const auto image = compile_image(cuda_scale(3)).value();
  const Binary binary = cuda::to_binary(ImageKind::cubin, image, "scale_3");
  const auto parts = cuda::parts_of(binary, ImageKind::cubin).value();
  EXPECT_EQ(parts.name, "scale_3");
  EXPECT_EQ(parts.entries, (std::vector<cuda::EntryPoint>{{"scale", "scale"}}));
  EXPECT_EQ(std::vector(parts.image.begin(), parts.image.end()), image.bytes);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(parts.image.data()) % 8, 0U);
  EXPECT_EQ(cuda::parts_of(binary, ImageKind::ptx).error().code(), ErrorCode::load_failed);
}

/// The bytes of PTX with a header and the terminating NUL.
std::vector<std::byte> ptx(const std::string& text) {
  const std::string whole = ".version 8.0\n.target sm_90\n.address_size 64\n" + text;
  const auto bytes = std::as_bytes(std::span(whole.c_str(), whole.size() + 1));
  return {bytes.begin(), bytes.end()};
}

TEST(Ptx, MayEndWithFileNamesAndComments) {
  for (const char* end : {"", "\n\t.file\t1 \"/home/} {.cu\"\n", "// the end }", "/* the } end */\n",
                          "\n.section .debug_str\n{\n.b8 1\n}\n"})
    EXPECT_TRUE(cuda::is_whole(ptx(std::string(".visible .entry k() { ret; }") + end), ImageKind::ptx)) << end;
}

TEST(Ptx, ThatIsCutOffIsNotWhole) {
  const std::string kernel = ".visible .entry k() { ret; }\n";
  for (const std::string& text :
       {std::string(), kernel + ".visible .entry j() { ret;", kernel + "}", kernel + "/* comment",
        kernel + ".file 1 \"a", std::string(".visible .entry k() // { }\n"), std::string("// ") + kernel,
        ".func k() { ret; }" + std::string(), kernel + '\0' + kernel})
    EXPECT_FALSE(cuda::is_whole(ptx(text), ImageKind::ptx)) << text;
}

TEST(Ptx, KernelsAreFoundInAnyLayout) {
  const std::vector<cuda::EntryPoint> expected = {{"k", "k"}};
  const std::vector<std::size_t> sizes = {8, 12};
  const std::string list = "(.param .u64 .ptr .global .align 4 a, .param .align 4 .b8 b[12])";
  for (const std::string& text : std::vector<std::string>{
           ".visible .entry k" + list + "{ ret; }", ".visible .entry\tk" + list + "\n{ ret; }",
           ".visible .entry\nk\n" + list + "{ ret; }", ".visible .entry k " + list + " { ret; }",
           ".visible.entry  k" + list + ".maxntid 32, 1, 1 { ret; }",
           ".visible .entry k(.param.u64 a, // ), .param .u32 no\n.param .b8 b /* [3] */ [0x0c]){ ret; }",
           ".entry k" + list + ";\n.entry k" + list + "{ ret; }", ".entry other();\n.entry k" + list + "{ ret; }",
           "// the .entry point is below\n.visible .entry k" + list + "{ ret; }",
           "/* .visible .entry old(.param .u64 a){ ret; } */\n.visible .entry k" + list + "{ ret; }",
           ".file 1 \".entry old(\"\n.visible .entry k" + list + "{ ret; }"}) {
    EXPECT_EQ(cuda::entry_points(ptx(text), ImageKind::ptx), expected) << text;
    EXPECT_EQ(cuda::argument_sizes(ptx(text), ImageKind::ptx, "k"), sizes) << text;
  }
  EXPECT_EQ(cuda::entry_points(ptx(".entry k{ ret; }"), ImageKind::ptx), expected);
  EXPECT_EQ(cuda::argument_sizes(ptx(".entry k{ ret; }"), ImageKind::ptx, "k"), std::vector<std::size_t>());
}

TEST(Ptx, SizesThatAreNotClearAreNotTold) {
  for (const char* list : {"(.param .texref t)", "(.param .u64 a[])", "(.param .u64 a[0])", "(.param .b8 a[n])",
                           "(.param .b8 a[99999999999999999999])", "(.param .b9999999 a)", "(.param .u64 a"})
    EXPECT_EQ(cuda::argument_sizes(ptx(std::string(".entry k") + list + "{ ret; }"), ImageKind::ptx, "k"),
              std::nullopt)
        << list;
}

TEST(KernelName, IsTheDemangledSymbolWithoutArguments) {
  const auto entries = cuda::named({"_Z5scaleIfEvPT_", "_ZN4math3addEPf", "plain", "_ZN4math3addEPf"});
  EXPECT_EQ(entries,
            (std::vector<cuda::EntryPoint>{
                {"scale<float>", "_Z5scaleIfEvPT_"}, {"math::add", "_ZN4math3addEPf"}, {"plain", "plain"}}));
}

TEST(KernelName, IsNoneForASymbolThatIsEmptyOrHasControlCharacters) {
  const auto entries = cuda::named({"one\ntwo", "", "three\tfour", "plain", "five\r", "with space"});
  EXPECT_EQ(entries, (std::vector<cuda::EntryPoint>{{"plain", "plain"}, {"with space", "with space"}}));
  const cuda::Image image{ptx(".visible .entry plain() { ret; }"), entries};
  const Binary binary = cuda::to_binary(ImageKind::ptx, image, "two");
  EXPECT_EQ(cuda::parts_of(binary, ImageKind::ptx).value().entries, entries);
}

TEST(KernelName, IsTheSymbolIfThatStandsForGigabytes) {
  // Each pair has two of the pair before it.
  std::string pairs = "_Z1f1PIiiE";
  for (const char place : std::string("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"))
    pairs += std::string("S_IS") + place + "_S" + place + "_E";
  EXPECT_EQ(cuda::named({pairs}), (std::vector<cuda::EntryPoint>{{pairs, pairs}}));
}

/// An ELF file of a cubin with an empty section.
std::string small_elf() {
  Elf64_Ehdr header = {};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_machine = 190;
  header.e_shoff = sizeof header;
  header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_shnum = 1;
  return std::string(reinterpret_cast<const char*>(&header), sizeof header) + std::string(sizeof(Elf64_Shdr), '\0');
}

constexpr std::uint16_t ptx_entry = 1;
constexpr std::uint16_t elf_entry = 2;

constexpr std::uint64_t lz4_flag = 0x2000;
constexpr std::uint64_t zstd_flag = 0x8000;

/// An entry of a fatbin with nvcc's usual flags and `compression`. `unpacked` is the size of the content before
/// compression, 0 without it.
std::string fatbin_entry(std::uint16_t kind, const std::string& content, std::uint64_t compression = 0,
                         std::uint64_t unpacked = 0) {
  std::string header(64, '\0');
  const auto put = [&header](std::size_t at, auto number) {
    std::memcpy(header.data() + at, &number, sizeof number);
  };
  put(0, kind);
  put(4, std::uint32_t{64});
  put(8, std::uint64_t{content.size()});
  if (unpacked != 0) put(16, static_cast<std::uint32_t>(content.size()));
  put(40, 0x11 | compression);
  put(56, unpacked);
  return header + content;
}

bool is_whole_fatbin(const std::string& entries, std::size_t missing = 0) {
  std::string image(16, '\0');
  const std::uint32_t magic = 0xBA55ED50;
  const std::uint16_t header = 16;
  const std::uint64_t size = entries.size() + missing;
  std::memcpy(image.data(), &magic, sizeof magic);
  std::memcpy(image.data() + 6, &header, sizeof header);
  std::memcpy(image.data() + 8, &size, sizeof size);
  image += entries;
  return cuda::is_whole(std::as_bytes(std::span(image)), ImageKind::fatbin);
}

TEST(Fatbin, WithCodeOfSeveralArchitecturesAndTextIsWhole) {
  const std::string code = fatbin_entry(elf_entry, small_elf());
  const std::string text = fatbin_entry(ptx_entry, ".version 8.0");
  const std::string lz4 = fatbin_entry(elf_entry, "packed..", lz4_flag, 100);
  const std::string zstd = fatbin_entry(elf_entry, "packed..", zstd_flag, 100);
  for (const std::string& entries : {code, text, lz4, zstd, code + text + code, lz4 + text + zstd})
    EXPECT_TRUE(is_whole_fatbin(entries));
}

TEST(Fatbin, IsNotWholeIfFlagsAndSizesContradictEachOther) {
  std::string broken = small_elf();
  broken[0] = 0;
  EXPECT_FALSE(is_whole_fatbin(fatbin_entry(elf_entry, broken)));
  EXPECT_FALSE(is_whole_fatbin(fatbin_entry(elf_entry, broken, 0, 1))) << "the driver takes it for code";
  EXPECT_FALSE(is_whole_fatbin(fatbin_entry(elf_entry, small_elf(), 0, 1)));
  EXPECT_FALSE(is_whole_fatbin(fatbin_entry(elf_entry, small_elf(), zstd_flag)));
  EXPECT_FALSE(is_whole_fatbin(fatbin_entry(elf_entry, small_elf(), lz4_flag)));
}

TEST(Fatbin, IsNotWholeIfAnEntryIsNot) {
  const std::string code = fatbin_entry(elf_entry, small_elf());
  EXPECT_FALSE(is_whole_fatbin(""));
  EXPECT_FALSE(is_whole_fatbin(code, 1)) << "its header declares another byte";
  EXPECT_FALSE(is_whole_fatbin(code + "more"));
  EXPECT_FALSE(is_whole_fatbin(code + std::string(64, '\0'))) << "a header of 0 bytes";
  std::string brief = fatbin_entry(ptx_entry, ".version 8.0");
  brief[4] = 16;
  brief[8] = 60;
  EXPECT_FALSE(is_whole_fatbin(brief)) << "a header of 16 bytes has no flags";
  for (std::size_t size = 1; size < code.size(); ++size) EXPECT_FALSE(is_whole_fatbin(code + code.substr(0, size)));
  EXPECT_FALSE(is_whole_fatbin(fatbin_entry(elf_entry, small_elf().substr(0, 100)))) << "the ELF file is cut off";
  std::string packed = fatbin_entry(elf_entry, "packed..", zstd_flag, 100);
  packed[16] = 9;
  EXPECT_FALSE(is_whole_fatbin(packed)) << "it has 8 bytes";
}

TEST(CudaTarget, IsCodeWhereTheCompilerKnowsTheArchitecture) {
  const auto target = cuda::target_for(90, 13020, {75, 80, 90, 100}).value();
  EXPECT_EQ(target.architecture, "sm_90");
  EXPECT_EQ(target.kind, ImageKind::cubin);
  EXPECT_EQ(target.option, "--gpu-architecture=sm_90");
  EXPECT_EQ(target.driver, "CUDA 13");
}

TEST(CudaTarget, IsTextForTheDriverWhereItDoesNot) {
  const auto target = cuda::target_for(95, 13020, {75, 80, 90, 100}).value();
  EXPECT_EQ(target.architecture, "sm_95");
  EXPECT_EQ(target.kind, ImageKind::ptx);
  EXPECT_EQ(target.option, "--gpu-architecture=compute_90");
  EXPECT_EQ(target.driver, "CUDA 13.2") << "the driver compiles it";
  const auto old = cuda::target_for(50, 13020, {75, 80});
  ASSERT_FALSE(old);
  EXPECT_NE(old.error().message().find("sm_50"), std::string::npos) << old.error().message();
}

}  // namespace
}  // namespace kiln
