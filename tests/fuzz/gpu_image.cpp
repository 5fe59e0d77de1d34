#include "backend/cuda/image.hpp"
#include "backend/sections.hpp"
#include "fuzz/input.hpp"

namespace kiln::fuzz {
namespace {

using Bytes = std::span<const std::byte>;
using cuda::ImageKind;

void read_image(ImageKind kind, const std::string& entry, Bytes image) {
  const bool whole = cuda::is_whole(image, kind);
  const auto sizes = cuda::argument_sizes(image, kind, entry);
  expect(whole || !sizes, "nothing is told of an image that is not whole");
  const Binary binary{static_cast<std::uint32_t>(kind),
                      backend::join_sections({image, backend::as_section("name"), backend::as_section(entry)})};
  const auto parts = cuda::parts_of(binary, kind);
  expect(parts.ok() == (whole && !entry.empty()), "a driver sees an image that is whole, and no other");
  expect(!parts || std::ranges::equal(parts->image, image), "an image is as it was");
  const auto entries = cuda::entry_points(image, kind);
  expect(whole || entries.empty(), "an image that is not whole has no entry points");
  for (const auto& stored : {parts ? parts->entries : std::vector<cuda::EntryPoint>(), entries}) {
    if (stored.empty()) continue;
    const Binary again = cuda::to_binary(kind, {{image.begin(), image.end()}, stored}, "name");
    expect(cuda::parts_of(again, kind)->entries == stored, "entry points are as they were");
  }
  static_cast<void>(cuda::referenced_symbol(image, entry));
  if (!whole) return;
  for (const Bytes part : cuda::code_objects(image))
    expect(part.data() >= image.data() && part.data() + part.size() <= image.data() + image.size(),
           "the parts of an image are in it");
}

void read_sections(Bytes bytes) {
  if (const auto sections = backend::split_sections(bytes, 2))
    expect(std::ranges::equal(backend::join_sections({(*sections)[0], (*sections)[1]}), bytes),
           "parts are joined as they were");
  if (const auto sections = backend::unseal_sections(bytes, 2))
    expect(std::ranges::equal(backend::seal_sections({(*sections)[0], (*sections)[1]}), bytes),
           "parts are sealed as they were");
  const auto sealed = backend::seal_sections({bytes, bytes});
  const auto sections = backend::unseal_sections(sealed, 2);
  expect(sections && std::ranges::equal((*sections)[1], bytes), "what was sealed can be opened");
  expect(!backend::unseal_sections(Bytes(sealed).first(sealed.size() - 1), 2), "what is cut off is not opened");
}

}  // namespace
}  // namespace kiln::fuzz

// What it is, the name of a kernel, and an image; or parts.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace kiln::fuzz;
  Input input(data, size);
  const auto kind = input.number<std::uint8_t>() % 5U;
  if (kind == 0) {
    read_sections(input.rest_bytes());
    return 0;
  }
  const std::string entry = input.text();
  read_image(static_cast<ImageKind>(kind), entry, input.rest_bytes());
  return 0;
}
