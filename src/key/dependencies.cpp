#include "key/dependencies.hpp"

#include <sys/stat.h>

#include "base/bytes.hpp"
#include "base/sha256.hpp"
#include "base/try.hpp"
#include "key/file_index.hpp"
#include "key/include_graph.hpp"
#include "key/include_record.hpp"

namespace kiln::key {
namespace {

/// The digest of all inputs of the search except the files themselves.
Digest search_digest_of(std::string_view source, const IncludeSearch& search,
                        const std::map<std::string, std::string>& defines) {
  base::ByteWriter writer;
  writer.text(source);
  for (const auto* texts : {&search.headers, &defines}) {
    writer.number(static_cast<std::uint64_t>(texts->size()));
    for (const auto& [name, text] : *texts) {
      writer.text(name);
      writer.text(text);
    }
  }
  writer.number(static_cast<std::uint64_t>(search.folders.size()));
  for (const auto& folder : search.folders) writer.text(folder.native());
  writer.number(static_cast<std::uint64_t>(search.toolkit_folders));
  writer.text(search.working_folder.native());
  writer.text(search.other_suffix);
  return base::sha256(writer.bytes());
}

}  // namespace

IncludeSearch search_of(Language language, const std::map<std::string, std::string>& headers,
                        const std::vector<std::filesystem::path>& folders, std::size_t toolkit_folders) {
  IncludeSearch search{.headers = headers, .folders = folders, .toolkit_folders = toolkit_folders};
  // NVRTC's preprocessor also tries this suffix for names without one.
  if (language == Language::cuda) search.other_suffix = ".stdh";
  if (language == Language::opencl) {
    std::error_code error;
    search.working_folder = std::filesystem::current_path(error);
  }
  return search;
}

Result<std::shared_ptr<const Dependencies>> find_dependencies(std::string_view source, const IncludeSearch& search,
                                                              const std::map<std::string, std::string>& defines) {
  const Digest search_digest = search_digest_of(source, search, defines);
  if (auto known = IncludeRecords::of_process().find(search_digest)) return known;
  IncludeGraph graph(search, defines);
  KILN_TRY(graph.build(source));
  Dependencies dependencies = graph.dependencies();
  const Observations observations = graph.take_observations();
  auto result = std::make_shared<const Dependencies>(dependencies);
  if (observations.complete)
    IncludeRecords::of_process().add(search_digest, IncludeRecord(std::move(dependencies), observations));
  return result;
}

Digest state_of(const Dependencies& dependencies) {
  base::ByteWriter writer;
  for (const auto& [name, digest] : dependencies.files) {
    // Given headers have relative names.
    struct stat status {};
    if (name.starts_with('/') && ::stat(name.c_str(), &status) == 0) write(writer, FileSignature::of(status));
    writer.number(static_cast<std::uint8_t>(0));
  }
  return base::sha256(writer.bytes());
}

}  // namespace kiln::key
