#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <kiln/digest.hpp>
#include <kiln/result.hpp>

namespace kiln {

/// The language a program is written in: GLSL for OpenGL, GLSL for Vulkan, OpenCL C, CUDA C++, HIP C++.
enum class Language { glsl, vulkan_glsl, opencl, cuda, hip };

/// The name of a language, as in "glsl". The text is static.
std::string_view to_string(Language language) noexcept;

/// Identifies a program. The digest, over the whole request with its name, decides; the name is for people and file
/// names. A value.
struct Key {
  Digest digest;
  std::string name;
};

/// Everything that can change a compiled program, and nothing else, as an immutable value.
///
/// A Request is hashed once, when it is constructed; getting it again costs no hashing. Construction replaces every
/// #include by the file's contents, so a Request that is constructed after a header was edited has another key, and
/// no compiler has to run to find out. Copies are cheap and share the content: references that the functions return
/// are valid as long as one copy. May be used from any thread.
class Request {
 public:
  /// The parts of a request. The order of `options` matters, that of `defines` does not. Of `headers` and
  /// `include_folders`, only the contents of included files matter.
  struct Fields {
    /// For listings and file names; at most 4096 characters. A renamed program is another program.
    std::string name = {};
    /// At most max_source_bytes, with all included files.
    std::string source = {};
    /// The entry point: always main in GLSL, the name of the kernel elsewhere.
    std::string entry = "main";
    Language language = Language::glsl;
    /// For the compiler. In OpenCL, CUDA and HIP, -D and -I, also in their long forms, count as `defines` and
    /// `include_folders`; -include and other options that make the compiler read a file are refused.
    std::vector<std::string> options = {};
    /// Defined before the first line of the source that is not #version.
    std::map<std::string, std::string> defines = {};
    /// The text of files for #include, by name; searched before `include_folders`.
    std::map<std::string, std::string> headers = {};
    /// Folders that #include searches next; for "quotes", after the including file's own folder.
    std::vector<std::filesystem::path> include_folders = {};
  };

  /// Resolves the includes, which reads files, then checks and hashes the request. Does not throw for an invalid
  /// request: error() says what is wrong with it, and every Cache::get() of it returns that error.
  Request(Fields fields);

  /// The largest source that a request may have, with all included files.
  static constexpr std::size_t max_source_bytes = std::size_t{16} << 20;

  /// Its name and the SHA-256 of everything that matters. An invalid request has a key that no valid one has.
  const Key& key() const noexcept { return state_->key; }
  const std::string& name() const noexcept { return state_->key.name; }
  /// The other fields. -D and -I in `options` have been moved to `defines` and `include_folders`.
  const std::string& entry() const noexcept { return state_->fields.entry; }
  Language language() const noexcept { return state_->fields.language; }
  const std::vector<std::string>& options() const noexcept { return state_->fields.options; }
  const std::map<std::string, std::string>& defines() const noexcept { return state_->fields.defines; }
  /// The source with every #include replaced by the file's contents; empty if the request is invalid. `#line N F`
  /// directives keep the compiler's line numbers: in GLSL, F is an index into files(); elsewhere it is the file's
  /// name.
  const std::string& source() const noexcept { return state_->source; }
  /// The names of the files in source(), in the order of their first use; the first is the source itself.
  const std::vector<std::string>& files() const noexcept { return state_->files; }
  /// Why the request is invalid, if it is: invalid_request (empty or too large source, a define that is no macro
  /// name, a refused option, …), include_not_found, include_cycle, or io for a file that cannot be read.
  const std::optional<Error>& error() const noexcept { return state_->error; }

  /// The request as a JSON object, with digests in place of long texts. Stored with the program, for `kiln show`
  /// and `kiln why`.
  std::string describe() const;

 private:
  struct State {
    Fields fields;
    Key key;
    std::string source;
    std::vector<std::string> files;
    std::vector<Digest> file_digests;
    std::optional<Error> error;
  };
  std::shared_ptr<const State> state_;
};

}  // namespace kiln
