#include "backend/hip/architecture.hpp"

#include <cstdio>
#include <fstream>
#include <map>

#include <fmt/format.h>

namespace kiln::hip {
namespace {

/// What a node says of itself, a name and a number a line.
std::map<std::string, unsigned long> properties_of(const std::filesystem::path& node) {
  std::map<std::string, unsigned long> properties;
  std::ifstream stream(node / "properties");
  std::string name;
  for (unsigned long value = 0; stream >> name >> value;) properties[name] = value;
  return properties;
}

}  // namespace

std::optional<std::string> architecture_name(unsigned long version) {
  if (version == 0) return std::nullopt;
  return fmt::format("gfx{}{:x}{:x}", version / 10000, version / 100 % 100, version % 100);
}

std::optional<std::string> architecture_at(std::string_view pci_id, const std::filesystem::path& nodes) {
  unsigned domain = 0;
  unsigned bus = 0;
  unsigned device = 0;
  unsigned function = 0;
  if (std::sscanf(std::string(pci_id).c_str(), "%x:%x:%x.%x", &domain, &bus, &device, &function) != 4)
    return std::nullopt;
  const unsigned long location = bus << 8 | device << 3 | function;
  std::error_code error;
  for (std::filesystem::directory_iterator node(nodes, error), end; !error && node != end; node.increment(error)) {
    auto properties = properties_of(node->path());
    if (properties["gfx_target_version"] != 0 && properties["location_id"] == location &&
        properties["domain"] == domain)
      return architecture_name(properties["gfx_target_version"]);
  }
  return std::nullopt;
}

}  // namespace kiln::hip
