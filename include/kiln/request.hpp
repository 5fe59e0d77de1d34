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

/// The name of a language, as in "glsl".
std::string_view to_string(Language language) noexcept;

/// Identifies a program. The digest decides; the name is for people and file names.
struct Key {
  Digest digest;
  std::string name;
};

/// Everything that can change a compiled program, and nothing else, as an immutable value.
///
/// A Request is hashed once, when it is constructed; getting it again costs no hashing. Construction replaces every
/// #include by the file's contents, so a Request that is constructed after a header was edited has another key, and
/// no compiler has to run to find out. Copying is cheap. Safe to use from any thread.
class Request {
 public:
  /// What a program is made of. The order of `options` matters, that of `defines` does not. Of `headers` and
  /// `include_folders`, only the contents of included files matter.
  struct Fields {
    /// What people call it, in listings and file names. A renamed program is another program.
    std::string name = {};
    std::string source = {};
    /// The function it begins at: always main in GLSL, the name of the kernel elsewhere.
    std::string entry = "main";
    Language language = Language::glsl;
    /// For the compiler. In OpenCL, CUDA and HIP, -D and -I, also in their long forms, count as `defines` and
    /// `include_folders`; options that make the compiler read a file, such as -include, are refused.
    std::vector<std::string> options = {};
    /// Defined before the first line of the source that is not #version.
    std::map<std::string, std::string> defines = {};
    /// Files for #include given as text; they come before those of `include_folders`.
    std::map<std::string, std::string> headers = {};
    /// Where #include looks next; for "quotes" the including file's own folder comes before.
    std::vector<std::filesystem::path> include_folders = {};
  };

  /// Makes the request: resolves its includes, checks it, hashes it. Does not throw for an invalid request: error()
  /// says what is wrong with it, and every get() of it returns that error.
  Request(Fields fields);

  /// The largest source, includes and all, that a request may have.
  static constexpr std::size_t max_source_bytes = std::size_t{16} << 20;

  const Key& key() const noexcept { return state_->key; }
  const std::string& name() const noexcept { return state_->key.name; }
  const std::string& entry() const noexcept { return state_->fields.entry; }
  Language language() const noexcept { return state_->fields.language; }
  const std::vector<std::string>& options() const noexcept { return state_->fields.options; }
  const std::map<std::string, std::string>& defines() const noexcept { return state_->fields.defines; }
  /// The source with every #include replaced by what it named. `#line N F` directives keep the compiler's
  /// line numbers: in GLSL F counts files(), the source itself being 0; elsewhere it is the file's name.
  const std::string& source() const noexcept { return state_->source; }
  /// The files the source was put together from, in the order of their first use; the first is the source itself.
  const std::vector<std::string>& files() const noexcept { return state_->files; }
  /// What is wrong with the request, if anything is.
  const std::optional<Error>& error() const noexcept { return state_->error; }

  /// The request's facts as a JSON object, long texts as digests: what `kiln show` and `kiln why` work with.
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
