#include "key/file_name.hpp"

namespace kiln::key {

std::string file_name_part(std::string_view text, std::size_t max) {
  std::string part;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
                       (c == '.' && !part.empty());
    if (plain) {
      part += c;
    } else if (c == '_' || (!part.empty() && part.back() != '_')) {
      part += '_';
    }
    if (part.size() == max) break;
  }
  while (part.size() > 1 && part.back() == '_') part.pop_back();
  return part.empty() ? "program" : part;
}

}  // namespace kiln::key
