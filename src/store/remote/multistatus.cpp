#include "store/remote/multistatus.hpp"

#include <algorithm>
#include <optional>

#include "base/text.hpp"
#include "store/remote/xml.hpp"
#include "store/store_url.hpp"

namespace kiln::store {
namespace {

Error invalid_listing(const std::string& why) {
  return Error(ErrorCode::io, "what is no WebDAV listing of this folder: " + why);
}

/// The path of a URL, or the path itself.
std::string_view path_of_href(std::string_view href) {
  href = base::trimmed(href);
  if (const std::size_t scheme = href.find("://"); !href.starts_with('/') && scheme != std::string_view::npos)
    href.remove_prefix(std::min(href.find('/', scheme + 3), href.size()));
  return href;
}

}  // namespace

Result<std::vector<std::string>> names_in_multistatus(std::string_view xml, std::string_view folder) {
  const auto asked = decode_percent(folder);
  std::vector<std::string> names;
  bool has_folder = false;
  std::vector<std::string> hrefs;
  const bool is_sound = read_xml(xml, [&](std::string_view path, std::string_view text) {
    if (path == "multistatus/response/href") hrefs.emplace_back(text);
  });
  if (!is_sound) return invalid_listing("it is incomplete or not well-formed");
  for (const std::string& href : hrefs) {
    const auto path = decode_percent(path_of_href(href));
    if (!asked || !path) return invalid_listing("a path has an invalid % escape");
    const bool is_folder = *path == *asked || *path + "/" == *asked;
    has_folder = has_folder || is_folder;
    if (is_folder || !path->starts_with(*asked)) continue;
    std::string name = path->substr(asked->size());
    if (name.ends_with('/')) name.pop_back();
    if (!name.empty() && name.find('/') == std::string::npos) names.push_back(std::move(name));
  }
  // Behind a proxy that changes paths, all names would seem to be absent.
  if (!has_folder) return invalid_listing("it does not name the folder");
  return names;
}

}  // namespace kiln::store
