#include "dialect/text.hpp"

#include <algorithm>
#include <array>
#include <set>

#include "key/source_scanner.hpp"

namespace kiln::dialect {
namespace {

using Words = std::set<std::string, std::less<>>;

using key::is_digit;
using key::is_word;

/// Splits a text into its identifiers.
Words split(std::string_view text) {
  Words words;
  for (std::size_t i = 0; i < text.size();) {
    std::size_t end = i;
    while (end < text.size() && is_word(text[end])) ++end;
    if (end > i && !is_digit(text[i])) words.emplace(text.substr(i, end - i));
    i = std::max(end, i + 1);
  }
  return words;
}

constexpr std::string_view glsl_words = R"(
active asm atomic_uint attribute bool break buffer case cast centroid class coherent common const continue default
discard do double else enum extern external false filter fixed flat float for goto half highp if in inline inout input
int interface invariant layout long lowp main mediump namespace noinline noperspective out output packed partition
patch precise precision public readonly resource restrict return sample sampler samplerShadow shared short sizeof
smooth static struct subpassInput subpassInputMS subroutine superp switch template this true typedef uint uniform
union unsigned using varying void volatile while writeonly)";

constexpr std::string_view opencl_words = R"(
auto bool complex constant event_t generic global half imaginary int kernel local ndrange_t pipe private quad
queue_t ptrdiff_t read_only read_write register restrict sampler_t signed size_t intptr_t uintptr_t clk_event_t
reserve_id_t typeof uchar uint ulong ushort vec_step write_only NAN NULL HUGE_VAL HUGE_VALF MAXFLOAT)";

constexpr std::string_view cpp_words = R"(
alignas alignof and and_eq asm assert auto bitand bitor bool break case catch char char8_t char16_t char32_t class
compl concept const consteval constexpr constinit const_cast continue co_await co_return co_yield decltype default
delete do double dynamic_cast else enum explicit export extern false float for friend goto if inline int linux long
mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected public register
reinterpret_cast requires return short signed sizeof static static_assert static_cast struct switch template this
thread_local throw true try typedef typeid typename typeof union unix unsigned using virtual void volatile wchar_t
while xor xor_eq blockDim blockIdx gridDim threadIdx warpSize dim3)";

/// Names of the dialect that need no prelude, because every language has them, and names that the host defines.
constexpr std::string_view dialect_words = R"(
KERNEL GROUP_X GROUP_Y GROUP_Z kiln ceil clamp cos dot exp floor fma log max min pow sin sqrt tanh)";

/// Names in the generated declarations that are no keywords; a macro of the same name would break them.
constexpr std::string_view declaration_words = R"(
binding local_size_x local_size_y local_size_z push_constant reqd_work_group_size set std140 std430)";

constexpr std::array all_languages = {Language::glsl, Language::vulkan_glsl, Language::opencl, Language::cuda,
                                      Language::hip};

/// All parts of all preludes, with duplicates.
std::vector<std::string_view> all_preludes() {
  std::vector<std::string_view> all;
  for (const Language language : all_languages)
    for (const bool reads_what_it_writes : {false, true})
      for (const std::string_view part : prelude(language, reads_what_it_writes)) all.push_back(part);
  return all;
}

/// All identifiers in the preludes; a macro of the same name would break them.
Words words_in_preludes() {
  Words words = split(declaration_words);
  for (const std::string_view part : all_preludes()) words.merge(split(part));
  return words;
}

/// Adds the names that a line of a prelude defines, and those in its macro's expansion; a variable of the same name
/// would hide them. Skips the macro's parameters and vector elements.
void add_names_of(std::string_view line, Words& words) {
  constexpr std::string_view define = "#define ";
  if (!line.starts_with(define)) {
    // A function's name is the word before its parameters.
    const std::size_t end = line.find('(');
    if (end == std::string_view::npos || !line.starts_with("FUNCTION ")) return;
    std::size_t begin = end;
    while (begin > 0 && is_word(line[begin - 1])) --begin;
    if (begin < end) words.emplace(line.substr(begin, end - begin));
    return;
  }
  line.remove_prefix(define.size());
  const auto end = static_cast<std::size_t>(std::ranges::find_if_not(line, is_word) - line.begin());
  words.emplace(line.substr(0, end));
  line.remove_prefix(end);
  Words own = {"x", "y", "z", "w"};
  if (line.starts_with('(')) {
    const std::size_t close = line.find(')');
    own.merge(split(line.substr(0, close)));
    line.remove_prefix(close);
  }
  for (const std::string& word : split(line))
    if (!own.contains(word)) words.insert(word);
}

/// All names that a kernel's source may use, and the names that they expand to.
Words names_of_preludes() {
  Words words = split(dialect_words);
  for (std::string_view part : all_preludes())
    while (!part.empty()) {
      const std::size_t end = std::min(part.find('\n'), part.size() - 1);
      add_names_of(part.substr(0, end), words);
      part.remove_prefix(end + 1);
    }
  return words;
}

/// For example vec4, dmat2x3, usampler2DArray, image3D, texture2D.
bool is_glsl_type(std::string_view name) {
  for (const std::string_view base : {"vec", "ivec", "uvec", "bvec", "dvec", "hvec", "fvec", "mat", "dmat"})
    if (name.starts_with(base))
      if (const auto rest = name.substr(base.size());
          rest.size() == 1 ? is_digit(rest[0]) : rest.size() == 3 && is_digit(rest[0]) && rest[1] == 'x')
        return true;
  if (name.starts_with('u') || name.starts_with("isampler") || name.starts_with("iimage") ||
      name.starts_with("itexture"))
    name.remove_prefix(1);
  for (const std::string_view base : {"sampler", "image", "texture"})
    if (name.starts_with(base))
      for (const std::string_view shape : {"1D", "2D", "3D", "Cube", "Buffer"})
        if (name.substr(base.size()).starts_with(shape)) return true;
  return false;
}

/// For example float16, uint3, image2d_t.
bool is_opencl_type(std::string_view name) {
  if (name.starts_with("image") && name.ends_with("_t")) return true;
  const std::size_t digits = std::min(name.find_first_of("0123456789"), name.size());
  const std::string_view base = name.substr(0, digits);
  const std::string_view count = name.substr(digits);
  constexpr std::array<std::string_view, 12> bases = {"bool", "char", "uchar", "short", "ushort", "int",
                                                      "uint", "long", "ulong", "float", "double", "half"};
  constexpr std::array<std::string_view, 5> counts = {"2", "3", "4", "8", "16"};
  return std::ranges::find(bases, base) != bases.end() && std::ranges::find(counts, count) != counts.end();
}

bool is_reserved_in_c(std::string_view name) {
  return name.find("__") != std::string_view::npos ||
         (name.size() > 1 && name[0] == '_' && name[1] >= 'A' && name[1] <= 'Z');
}

}  // namespace

std::string_view why_taken(std::string_view name, NameUse use) {
  static const Words glsl = split(glsl_words);
  static const Words opencl = split(opencl_words);
  static const Words cpp = split(cpp_words);
  static const Words names = names_of_preludes();
  static const Words everything = words_in_preludes();
  if (name.starts_with("kiln_") || name.starts_with("KILN_")) return "has a prefix that Kiln reserves";
  if (name.starts_with("gl_")) return "has a prefix that GLSL reserves";
  if (is_reserved_in_c(name)) return "has underscores that C reserves for compilers";
  if (glsl.contains(name) || is_glsl_type(name)) return "is reserved in GLSL";
  if (cpp.contains(name)) return "is reserved in C++";
  if (opencl.contains(name) || is_opencl_type(name)) return "is reserved in OpenCL C";
  if (names.contains(name)) return "is a name that Kiln declares in kernels";
  if (use == NameUse::macro && everything.contains(name))
    return "occurs in the text that Kiln puts before the source";
  return {};
}

}  // namespace kiln::dialect
