#include <kiln/kernel.hpp>

#include <array>

#include "backend/source_text.hpp"
#include "fuzz/input.hpp"
#include "fuzz/numbered_lines.hpp"
#include "store/directory.hpp"

namespace kiln::fuzz {
namespace {

Type type_of(char c) { return static_cast<Type>(static_cast<unsigned char>(c) % 8); }

/// Adds what a text declares: by its first character a buffer, a scalar, a shared array, a parameter or the size of
/// a group.
void declare(const std::string& text, Kernel& kernel) {
  const auto at = [&text](std::size_t i) { return i < text.size() ? text[i] : '\0'; };
  const std::string name = text.substr(std::min<std::size_t>(3, text.size()));
  switch (at(0)) {
    case 'b':
      kernel.buffers.push_back({name, type_of(at(1)), static_cast<Access>(static_cast<unsigned char>(at(2)) % 3)});
      break;
    case 's': kernel.scalars.push_back({name, type_of(at(1))}); break;
    case 'a': {
      SharedArray array{name.substr(0, name.find('[')), type_of(at(1))};
      for (std::size_t i = name.find('['); i != std::string::npos; i = name.find('[', i + 1))
        array.extents.push_back(name.substr(i + 1, name.find('[', i + 1) - i - 1));
      kernel.shared.push_back(std::move(array));
      break;
    }
    case 'p':
      kernel.parameters.insert_or_assign(name.substr(0, name.find('=')), name.substr(name.find('=') + 1));
      break;
    case 'g': kernel.group_size[static_cast<unsigned char>(at(1)) % 3] = static_cast<unsigned char>(at(2)); break;
    default: kernel.min_groups = static_cast<unsigned char>(at(1)); break;
  }
}

void expect_lines_of_source(const Kernel& kernel, const std::string& text) {
  for_each_numbered_line(text, [&](std::string_view line, std::size_t number, std::string_view origin) {
    if (origin.empty() || number >= backend::generated_lines || line.empty() || line == "}") return;
    // Where KERNEL stood, GLSL has a function's head, and the others end the line.
    const std::string_view of_source = line_of(kernel.source, number);
    if (of_source.find("KERNEL") == std::string_view::npos)
      expect(line == of_source, "the lines of the source keep their numbers");
  });
}

void check(const Kernel& kernel, Language language, const std::string& text, bool has_own_numbers) {
  const bool glsl = language == Language::glsl || language == Language::vulkan_glsl;
  expect(text.starts_with("#version") == glsl, "#version comes first in GLSL, and only there");
  expect(text.ends_with(glsl ? "\n" : "\n}\n"), "a text ends what it has begun");
  expect(glsl || !text.ends_with("\\\n}\n"), "the brace that ends a function is on a line of its own");
  if (!has_own_numbers) expect_lines_of_source(kernel, text);

  const auto request = kernel.request(language);
  expect(request.ok(), "what can be emitted can be asked for");
  expect(is_plain_file_name(store::entry_file_name(request->key())), "a kernel's file has a plain name");
  if (request->error()) return;
  // Nothing may stand before #version.
  const std::string& source = request->source();
  expect(backend::with_defines(*request).ends_with(source.substr(source.find('\n'))),
         "defines come before the source");
}

}  // namespace
}  // namespace kiln::fuzz

// A language, a name, a source, and what declare() takes.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace kiln;
  using namespace kiln::fuzz;
  Input input(data, size);
  const bool has_own_numbers = input.rest().find("line") != std::string_view::npos;
  const auto language = static_cast<Language>(input.number<std::uint8_t>() % 5);
  Kernel kernel{.name = input.text(), .source = input.text()};
  while (!input.empty()) declare(input.text(), kernel);

  const auto text = kernel.emit(language);
  const bool sound = kernel.emit(static_cast<Language>((static_cast<int>(language) + 1) % 5)).ok();
  expect(text.ok() == sound, "a kernel that is fit for one language is fit for all");
  if (!text) return 0;
  check(kernel, language, *text, has_own_numbers);

  std::vector<Scalar> values;
  for (const KernelScalar& scalar : kernel.scalars)
    values.push_back(scalar.type == Type::f32   ? Scalar(1.0F)
                     : scalar.type == Type::i32 ? Scalar(-1)
                                                : Scalar(std::uint32_t{1}));
  const auto packed = kernel.pack(values);
  expect(packed && packed->size() == 4 * values.size(), "scalars are packed one behind the other");
  const auto special = kernel.specialised(values);
  expect(special && special->name != kernel.name, "a kernel for one size has its own name");
  return 0;
}
