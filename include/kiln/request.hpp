#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <kiln/digest.hpp>
#include <kiln/result.hpp>

namespace kiln {

namespace key {
struct Dependencies;
}

/// The language of a program: GLSL for OpenGL, GLSL for Vulkan, OpenCL C, CUDA C++ and HIP C++; or a form that is
/// compiled already: SPIR-V for Vulkan, OpenGL and OpenCL, NVIDIA's PTX, cubins and fatbins, and AMD's code
/// objects.
enum class Language { glsl, vulkan_glsl, opencl, cuda, hip, spirv, ptx, cubin, fatbin, code_object };

/// The name of a language, as in "glsl". The text is static.
std::string_view to_string(Language language) noexcept;
/// The language whose to_string() is `name`, as in `kiln compile --language cuda`; nothing if there is none.
std::optional<Language> language_of(std::string_view name) noexcept;

/// Identifies a program. The digest, over the whole request with its name, decides; the name is for people and file
/// names. A value.
struct Key {
  Digest digest;
  std::string name;
};

/// The value of a specialisation constant. Write the type of the declaration, as in `64U` for a uint: only integers
/// may have the other sign, if the value fits.
using Constant = std::variant<bool, std::int32_t, std::uint32_t, float, double, std::int64_t, std::uint64_t>;

/// The type, as GLSL calls it, and the value: "uint 64".
std::string to_string(const Constant& constant);

/// Everything that can change a compiled program, and nothing else, as an immutable value.
///
/// A Request is hashed once, when it is constructed; getting it again costs no hashing. Its key covers the contents
/// of every file that its source can include, so a Request that is constructed after a header was edited has
/// another key, and no compiler has to run to find out. Copies are cheap and share the content: references that the
/// functions return are valid as long as one copy. May be used from any thread.
///
/// In GLSL, construction replaces every #include by the file's contents. In OpenCL, CUDA and HIP, the compiler
/// reads the files itself, and the key covers every file that it can read, whatever conditions and macros decide:
/// contents, which file each #include leads to, and names that are found nowhere. A header that is added in front
/// of another one changes the key; moving the folders does not. docs/headers.md describes the details.
class Request {
 public:
  /// The parts of a request. The order of `options` matters, that of `defines` does not. Of `headers` and
  /// `include_folders`, only the files that the source can include matter: their contents, and which #include leads
  /// to which.
  struct Fields {
    /// For listings and file names; at most 4096 characters. A renamed program is another program.
    std::string name = {};
    /// The text, or the bytes of a program that is compiled already. A text has at most max_source_bytes, which in
    /// GLSL counts all included files; a compiled program has at most max_binary_bytes.
    std::string source = {};
    /// The entry points. If empty, all kernels of the source. GLSL has one, main. In CUDA and HIP, an entry point
    /// may be a name expression, as in "scale<float>" or "math::scale": the templates that are named are
    /// instantiated, and Program::entry() takes the same text. Kernels of CUDA and HIP need no extern "C". OpenGL
    /// takes one entry point.
    std::vector<std::string> entries = {};
    Language language = Language::glsl;
    /// For the compiler; must be empty, like `defines`, if the program is compiled already. In OpenCL, CUDA and
    /// HIP, -D, -U, -I and similar options, such as -isystem and --define-macro, change `defines` and
    /// `include_folders`; -include and other options that make the compiler read a file are refused.
    std::vector<std::string> options = {};
    /// Macros, which may have parameters, as in {"TEXT(x)", "#x"}. Defined before the first line of the source that
    /// is not #version.
    std::map<std::string, std::string> defines = {};
    /// The text of files for #include, by name, such as "tile.h" or "lib/tile.h"; searched as if they were files of
    /// a folder that precedes `include_folders`.
    std::map<std::string, std::string> headers = {};
    /// Folders that #include searches next; for "quotes", after the including file's own folder. The headers of
    /// CUDA and HIP are found without being named here: see docs/headers.md.
    std::vector<std::filesystem::path> include_folders = {};
    /// Values of specialisation constants by their ids (`constant_id`, or `local_size_x_id` for the group size).
    /// Others keep the defaults of the source. Only for GLSL for Vulkan, and for SPIR-V in Vulkan and OpenGL, which
    /// has only values of 32 bits. compile() fails with invalid_request if the program has no constant with an id,
    /// or one of another type.
    std::map<std::uint32_t, Constant> constants = {};
  };

  /// Reads the included files, then checks and hashes the request. Does not throw for an invalid request: error()
  /// says what is wrong with it, and every Cache::get() of it returns that error.
  Request(Fields fields);

  /// The largest source that a request may have, and the largest program that is compiled already.
  static constexpr std::size_t max_source_bytes = std::size_t{16} << 20;
  static constexpr std::size_t max_binary_bytes = std::size_t{256} << 20;

  /// Its name and the SHA-256 of everything that matters. An invalid request has a key that no valid one has.
  const Key& key() const noexcept { return state_->key; }
  const std::string& name() const noexcept { return state_->key.name; }
  /// The other fields. -D and -I in `options` have been moved to `defines` and `include_folders`.
  const std::vector<std::string>& entries() const noexcept { return state_->fields.entries; }
  Language language() const noexcept { return state_->fields.language; }
  const std::vector<std::string>& options() const noexcept { return state_->fields.options; }
  const std::map<std::string, std::string>& defines() const noexcept { return state_->fields.defines; }
  const std::map<std::uint32_t, Constant>& constants() const noexcept { return state_->fields.constants; }
  /// The source as the compiler gets it, without `defines`; empty if the request is invalid. In GLSL, every
  /// #include is replaced by the file's contents, with `#line N F` directives that keep the compiler's line
  /// numbers, where F is an index into files(). In the other languages it is the source that was given.
  const std::string& source() const noexcept { return state_->source; }
  /// The names of the files that it consists of: the source itself, then all files that can be included, in the
  /// order in which they are first named.
  const std::vector<std::string>& files() const;
  /// For the compilers of OpenCL, CUDA and HIP: the given headers, and all folders that #include searches, in this
  /// order, as absolute paths, with those of the toolkit last. Both are empty in GLSL, and if the source names no
  /// file.
  const std::map<std::string, std::string>& headers() const noexcept { return state_->fields.headers; }
  const std::vector<std::filesystem::path>& include_folders() const noexcept {
    return state_->fields.include_folders;
  }
  /// Files that the source names and that are found nowhere. A compiler may not need them: conditions are not
  /// evaluated.
  const std::vector<std::string>& missing_files() const noexcept;
  /// The digest of all included files; null if the source names none, and in GLSL.
  const Digest* included() const noexcept;

  /// Why the request is invalid, if it is: invalid_request (empty or too large source, a define that is no macro
  /// name, a refused option, …), or io for a file that changed while it was read; in GLSL also include_not_found,
  /// include_cycle, or io for a file that cannot be read.
  const std::optional<Error>& error() const noexcept { return state_->error; }

  /// As key().digest, but without the headers of the CUDA or ROCm toolkit: a name that is found there counts as one
  /// that is found nowhere. So it is the same on a machine without the toolkit, which can find a program in a
  /// bundle by it. Nothing if the language has no toolkit, if the source names no file, if the names of files are
  /// computed in a way that only the compiler knows, or if the toolkit's headers are in a folder that also has those
  /// of others, such as /usr/include. Hashes the request again with each call.
  std::optional<Digest> digest_without_toolkit() const;

  /// Checks that a compiler that runs now reads the files that the key covers. Fails with outdated if one was
  /// changed, added or removed since construction: make the request again.
  ///
  /// Returns a digest of the stat data of the files. If it is the same before and after a compilation, no file
  /// changed meanwhile, not even for a moment. A cache compares both before it keeps the program.
  Result<Digest> check_files() const;

  /// The request as a JSON object, with digests in place of long texts. Stored with the program, for `kiln show`
  /// and `kiln why`.
  std::string describe() const;
  /// files() with the beginnings of their SHA-256 digests, as a JSON array. Stored with the program, too.
  std::string describe_files() const;

 private:
  struct State {
    Fields fields;
    Key key;
    std::string source;
    /// In GLSL, the files that the source consists of.
    std::vector<std::string> files;
    std::vector<Digest> file_digests;
    /// In the other languages, the files that it can include; null if it names none.
    std::shared_ptr<const key::Dependencies> dependencies;
    /// How many of the include folders, the last ones, are those of the toolkit.
    std::size_t toolkit_folders = 0;
    /// files() of these languages, made by its first call. No once_flag: a forked child would wait for a thread
    /// that it lacks.
    mutable std::atomic<const std::vector<std::string>*> names = nullptr;
    std::optional<Error> error;

    State() = default;
    State(const State&) = delete;
    State& operator=(const State&) = delete;
    ~State();
  };
  std::shared_ptr<const State> state_;
};

}  // namespace kiln
