#include "backend/cuda/image.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <climits>
#include <random>

#include <elf.h>

#include <nlohmann/json.hpp>

#include <kiln/hip.hpp>

#include "backend/cuda/cuda.hpp"

namespace kiln {
namespace {

using cuda::argument_sizes;
using cuda::ImageKind;
using Image = std::vector<std::byte>;
using Sizes = std::vector<std::size_t>;

/// Kernels that take much, little and nothing, and one whose name ends as another's.
Request kernels(Language language) {
  return Request({.name = "kernels",
                  .source = R"(struct Three { char bytes[3]; };
struct alignas(16) Aligned { float numbers[8]; };
extern "C" __global__ void mixed(float* to, Three three, short number, Aligned aligned, double last) {
  *to = three.bytes[1] + number + aligned.numbers[2] + (float)last;
}
extern "C" __global__ void upscale(float* to) { *to = 1; }
extern "C" __global__ void nothing() {}
)",
                  .entries = {"mixed"},
                  .language = language});
}

void expect_sizes(const Image& image, ImageKind kind) {
  EXPECT_EQ(argument_sizes(image, kind, "mixed"), (Sizes{8, 3, 2, 32, 8}));
  EXPECT_EQ(argument_sizes(image, kind, "upscale"), Sizes{8});
  EXPECT_EQ(argument_sizes(image, kind, "nothing"), Sizes{});
  EXPECT_EQ(argument_sizes(image, kind, "scale"), std::nullopt);
  EXPECT_EQ(argument_sizes(image, kind, ""), std::nullopt);
}

/// Whatever changed bytes make of it, nothing is read that is not there.
void expect_no_crash(const Image& image, ImageKind kind) {
  std::mt19937 random(1);
  std::size_t told = 0;
  for (int round = 0; round < 5000; ++round) {
    Image changed = image;
    for (int i = 0; i < 3; ++i) changed[random() % changed.size()] = static_cast<std::byte>(random() & 0xff);
    if (argument_sizes(changed, kind, "mixed")) ++told;
  }
  EXPECT_GT(told, 0U);
}

/// Images of NVRTC's; nothing where there is none.
Result<Image> nvrtc_image(int capability, const Request& request) {
  const auto rtc = cuda::open_nvrtc(INT_MAX);
  if (!rtc) return rtc.error();
  const auto target = cuda::target_for(capability, 13000, (*rtc)->architectures());
  if (!target) return target.error();
  auto image = cuda::compile_image(cuda::platform(), **rtc, *target, request);
  if (!image) return std::move(image).error();
  return std::move(image->bytes);
}

TEST(ArgumentSizes, AreReadFromCubins) {
  for (const int capability : {80, 90, 100}) {
    const auto image = nvrtc_image(capability, kernels(Language::cuda));
    if (!image) GTEST_SKIP() << image.error().message();
    expect_sizes(*image, ImageKind::cubin);
    expect_no_crash(*image, ImageKind::cubin);
  }
}

TEST(ArgumentSizes, AreReadFromPtx) {
  const auto image = nvrtc_image(990, kernels(Language::cuda));
  if (!image) GTEST_SKIP() << image.error().message();
  expect_sizes(*image, ImageKind::ptx);
  expect_no_crash(*image, ImageKind::ptx);
}

TEST(ArgumentSizes, AreReadForKernelsThatTakeKilobytes) {
  for (const int capability : {90, 990}) {
    const auto image = nvrtc_image(
        capability, Request({.name = "large",
                             .source = "struct Large { char bytes[20000]; };\n"
                                       "extern \"C\" __global__ void large(char* to, Large from, int i) {\n"
                                       "  *to = from.bytes[i];\n}\n",
                             .entries = {"large"},
                             .language = Language::cuda}));
    if (!image) GTEST_SKIP() << image.error().message();
    EXPECT_EQ(argument_sizes(*image, capability == 90 ? ImageKind::cubin : ImageKind::ptx, "large"),
              (Sizes{8, 20000, 4}));
  }
}

/// An ELF file with the given sections behind its header, and the table of sections at its end.
Image elf(std::uint16_t machine, std::vector<Elf64_Shdr> sections, const Image& contents, std::uint16_t names = 0) {
  Elf64_Ehdr header = {};
  std::ranges::copy(std::to_array<unsigned char>({ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB}),
                    header.e_ident);
  header.e_machine = machine;
  header.e_shoff = sizeof header + contents.size();
  header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_shnum = static_cast<Elf64_Half>(sections.size());
  header.e_shstrndx = names;
  for (Elf64_Shdr& section : sections) section.sh_offset += sizeof header;
  Image image;
  for (const auto part : {std::as_bytes(std::span(&header, 1)), std::span<const std::byte>(contents),
                          std::as_bytes(std::span(sections))})
    image.insert(image.end(), part.begin(), part.end());
  return image;
}

nlohmann::json noted_kernel(const std::string& name, const nlohmann::json& sizes) {
  nlohmann::json kernel = {{".name", name}, {".args", nlohmann::json::array()}};
  for (const auto& size : sizes) kernel[".args"].push_back({{".size", size}, {".value_kind", "by_value"}});
  return kernel;
}

/// A code object that has only the metadata of kernels.
Image noted_kernels(const nlohmann::json& kernels) {
  const auto metadata = nlohmann::json::to_msgpack({{"amdhsa.kernels", kernels}});
  const Elf64_Nhdr note = {.n_namesz = 0, .n_descsz = static_cast<Elf64_Word>(metadata.size()), .n_type = 32};
  Image contents;
  for (const auto part : {std::as_bytes(std::span(&note, 1)), std::as_bytes(std::span(metadata))})
    contents.insert(contents.end(), part.begin(), part.end());
  Elf64_Shdr section = {};
  section.sh_type = SHT_NOTE;
  section.sh_size = contents.size();
  return elf(EM_AMDGPU, {section}, contents);
}

/// A code object with the metadata of the kernel "mixed": arguments of these sizes.
Image noted(const nlohmann::json& sizes) {
  return noted_kernels(nlohmann::json::array({noted_kernel("mixed", sizes)}));
}

constexpr std::uint16_t machine_cuda = 190;

/// A cubin that has only the sections .nv.info of kernels k0, k1 and so on, with an argument of 8 bytes each.
Image informed_kernels(std::size_t count) {
  constexpr auto record = std::to_array<std::uint32_t>({12U << 16 | 0x17U << 8 | 0x04U, 0, 0, 8U << 18});
  const auto bytes = std::as_bytes(std::span(record));
  Image contents(bytes.begin(), bytes.end());
  std::vector<Elf64_Shdr> sections(count + 1);
  std::string names(1, '\0');
  for (std::size_t i = 0; i < count; ++i) {
    sections[i].sh_name = static_cast<Elf64_Word>(names.size());
    sections[i].sh_type = SHT_PROGBITS;
    sections[i].sh_size = bytes.size();
    names += ".nv.info.k" + std::to_string(i) + '\0';
  }
  sections[count].sh_type = SHT_STRTAB;
  sections[count].sh_offset = contents.size();
  sections[count].sh_size = names.size();
  const auto text = std::as_bytes(std::span(names));
  contents.insert(contents.end(), text.begin(), text.end());
  return elf(machine_cuda, std::move(sections), contents, static_cast<std::uint16_t>(count));
}

TEST(ArgumentSizes, OfManyKernelsAreReadInOnePass) {
  // Reading the image once for each kernel would exceed the time limit of the test.
  constexpr std::size_t count = 40000;
  nlohmann::json kernels = nlohmann::json::array();
  std::vector<cuda::EntryPoint> entries;
  for (std::size_t i = 0; i < count; ++i) {
    entries.push_back({"k" + std::to_string(i), "k" + std::to_string(i)});
    kernels.push_back(noted_kernel(entries.back().symbol, {8}));
  }
  const std::vector<std::optional<Sizes>> expected(count, Sizes{8});
  EXPECT_EQ(argument_sizes(noted_kernels(kernels), ImageKind::code_object, entries), expected);
  EXPECT_EQ(argument_sizes(informed_kernels(count), ImageKind::cubin, entries), expected);
}

TEST(ArgumentSizes, ThatAreNoWholeNumbersAreNotTold) {
  const auto sizes = [](const nlohmann::json& noted_sizes) {
    return argument_sizes(noted(noted_sizes), ImageKind::code_object, "mixed");
  };
  EXPECT_EQ(sizes({8, 4}), (Sizes{8, 4}));
  for (const nlohmann::json& size : {nlohmann::json(1e300), nlohmann::json(1.5), nlohmann::json(-1),
                                     nlohmann::json("8"), nlohmann::json(true), nlohmann::json()})
    EXPECT_EQ(sizes({8, size}), std::nullopt) << size;
  const auto beside = noted_kernels({"nonsense", noted_kernel("odd", {"8"}), noted_kernel("mixed", {8})});
  EXPECT_EQ(argument_sizes(beside, ImageKind::code_object, "mixed"), Sizes{8}) << "other kernels do not matter";
}

TEST(ArgumentSizes, AreReadFromCodeObjects) {
  for (const char* architecture : {"gfx906", "gfx90a", "gfx1030"}) {
    const auto binary = hip::compile_for(kernels(Language::hip), architecture);
    if (!binary && binary.error().code() == ErrorCode::unsupported) GTEST_SKIP() << binary.error().message();
    const auto parts = cuda::parts_of(binary.value(), ImageKind::code_object).value();
    const Image image(parts.image.begin(), parts.image.end());
    expect_sizes(image, ImageKind::code_object);
    expect_no_crash(image, ImageKind::code_object);
  }
}

}  // namespace
}  // namespace kiln
