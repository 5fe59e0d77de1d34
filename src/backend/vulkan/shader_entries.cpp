#include <algorithm>
#include <limits>
#include <string_view>
#include <utility>

#include "backend/vulkan/spirv.hpp"
#include "base/bytes.hpp"

/// The format in which entry points and their interfaces are stored.
namespace kiln::vulkan {
namespace {

using backend::GlslMember;
using backend::GlslResource;

/// Reads from damaged bytes too: behind their end there are zeros.
class Input {
 public:
  explicit Input(std::span<const std::byte> bytes) : bytes_(bytes) {}

  bool empty() const noexcept { return bytes_.empty(); }
  /// Whether there were enough bytes.
  bool is_whole() const noexcept { return is_whole_; }

  template <class T>
  T number() {
    const auto taken = take(sizeof(T));
    return taken.empty() ? T{} : base::ByteReader(taken).number<T>();
  }
  std::string text(std::size_t most) {
    const auto size = number<std::uint64_t>();
    if (size > most) is_whole_ = false;
    const auto taken = take(size);
    return {reinterpret_cast<const char*>(taken.data()), taken.size()};
  }
  /// A number of elements, each of at least one byte.
  std::size_t count(std::size_t most) {
    const auto count = number<std::uint32_t>();
    if (count > most || count > bytes_.size()) is_whole_ = false;
    return is_whole_ ? count : 0;
  }

 private:
  std::span<const std::byte> take(std::uint64_t size) {
    if (size > bytes_.size()) is_whole_ = false;
    if (!is_whole_) return {};
    const auto taken = bytes_.first(static_cast<std::size_t>(size));
    bytes_ = bytes_.subspan(taken.size());
    return taken;
  }

  std::span<const std::byte> bytes_;
  bool is_whole_ = true;
};

void write(base::ByteWriter& to, const ShaderInterface& interface) {
  for (const std::uint32_t size : interface.group_size) to.number(size);
  to.number(interface.shared_bytes);
  to.number(interface.parameter_bytes);
  to.number(static_cast<std::uint32_t>(interface.members.size()));
  for (const GlslMember& member : interface.members) {
    to.text(member.name);
    to.number(member.offset);
    to.number(member.bytes);
  }
  to.number(static_cast<std::uint32_t>(interface.resources.size()));
  for (const GlslResource& resource : interface.resources) {
    to.number(static_cast<std::uint8_t>(resource.kind));
    to.number(resource.place.set);
    to.number(resource.place.binding);
    to.number(resource.count);
    to.number(resource.bytes);
    to.text(resource.name);
  }
  to.number(static_cast<std::uint32_t>(interface.constants.size()));
  for (const SpecConstant& constant : interface.constants) {
    to.number(constant.id);
    to.number(static_cast<std::uint8_t>(constant.kind));
    to.number(constant.bits);
    to.number(static_cast<std::uint8_t>(constant.is_given));
    to.number(constant.value);
    to.text(constant.name);
  }
}

ShaderInterface read_interface(Input& from) {
  ShaderInterface interface;
  for (std::uint32_t& size : interface.group_size) size = from.number<std::uint32_t>();
  interface.shared_bytes = from.number<std::uint64_t>();
  interface.parameter_bytes = from.number<std::uint32_t>();
  interface.members.resize(from.count(max_members));
  for (GlslMember& member : interface.members) {
    member.name = from.text(max_name);
    member.offset = from.number<std::uint32_t>();
    member.bytes = from.number<std::uint32_t>();
  }
  interface.resources.resize(from.count(max_declarations));
  for (GlslResource& resource : interface.resources) {
    resource.kind = static_cast<GlslResource::Kind>(from.number<std::uint8_t>());
    resource.place.set = from.number<std::uint32_t>();
    resource.place.binding = from.number<std::uint32_t>();
    resource.count = from.number<std::uint32_t>();
    resource.bytes = from.number<std::uint64_t>();
    resource.name = from.text(max_name);
  }
  interface.constants.resize(from.count(max_declarations));
  for (SpecConstant& constant : interface.constants) {
    constant.id = from.number<std::uint32_t>();
    constant.kind = static_cast<SpecConstant::Kind>(from.number<std::uint8_t>());
    constant.bits = from.number<std::uint8_t>();
    constant.is_given = from.number<std::uint8_t>() != 0;
    constant.value = from.number<std::uint64_t>();
    constant.name = from.text(max_name);
  }
  return interface;
}

/// Whether a module can have the interface: launches rely on it.
bool is_possible(const ShaderInterface& interface) {
  const auto fits = [&](const GlslMember& member) {
    return member.bytes > 0 && member.offset <= interface.parameter_bytes &&
           member.bytes <= interface.parameter_bytes - member.offset;
  };
  const auto is_bindable = [](const GlslResource& resource) {
    return resource.kind <= GlslResource::Kind::storage_texel_buffer && resource.count > 0 &&
           resource.place.binding <= max_binding && resource.place.element == 0;
  };
  const auto is_scalar = [](const SpecConstant& constant) {
    return constant.kind <= SpecConstant::Kind::real &&
           (constant.bits == 8 || constant.bits == 16 || constant.bits == 32 || constant.bits == 64);
  };
  const auto is_out_of_order = [](const GlslResource& a, const GlslResource& b) {
    return place_of(a) >= place_of(b);
  };
  return std::ranges::all_of(interface.members, fits) && std::ranges::all_of(interface.resources, is_bindable) &&
         std::ranges::all_of(interface.constants, is_scalar) &&
         std::ranges::adjacent_find(interface.resources, is_out_of_order) == interface.resources.end();
}

}  // namespace

std::uint32_t ShaderInterface::buffers() const noexcept {
  std::uint32_t count = 0;
  for (const GlslResource& resource : resources)
    if (resource.kind == GlslResource::Kind::storage_buffer && resource.place.set == 0) {
      // OpenGL takes any binding from a module, so the sum may be too large.
      const std::uint64_t end = std::uint64_t{resource.place.binding} + resource.count;
      count = std::max(count, static_cast<std::uint32_t>(
                                  std::min<std::uint64_t>(end, std::numeric_limits<std::uint32_t>::max())));
    }
  return count;
}

std::vector<std::byte> to_bytes(const std::vector<ShaderEntry>& entries) {
  base::ByteWriter writer;
  for (const auto& [name, interface] : entries) {
    writer.text(name);
    write(writer, interface);
  }
  return std::move(writer).bytes();
}

std::optional<std::vector<ShaderEntry>> entries_from(std::span<const std::byte> bytes) {
  Input input(bytes);
  std::vector<ShaderEntry> entries;
  while (!input.empty()) {
    if (entries.size() == max_entries) return std::nullopt;
    std::string name = input.text(max_entry_name);
    ShaderInterface interface = read_interface(input);
    if (!input.is_whole() || !is_possible(interface)) return std::nullopt;
    entries.push_back({std::move(name), std::move(interface)});
  }
  return entries.empty() ? std::nullopt : std::optional(std::move(entries));
}

}  // namespace kiln::vulkan
