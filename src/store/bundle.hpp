#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <kiln/digest.hpp>
#include <kiln/identity.hpp>
#include <kiln/result.hpp>

#include <sys/stat.h>

#include "base/file.hpp"
#include "key/request_record.hpp"
#include "store/sealed_entry.hpp"
#include "store/signatures.hpp"

/// Bundles: read-only files with many sealed entries. docs/bundles.md specifies the format.
namespace kiln::store {

struct BundleHeader;

/// A program in a bundle.
struct BundledProgram {
  Digest key = {};
  /// SHA-256 of the body of its sealed entry.
  Digest body = {};
  /// The sealed entry in the file.
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
  /// XXH3 (64 bits) of the sealed entry.
  std::uint64_t checksum = 0;
  /// The index of what compiled it, in BundleFile::identities().
  std::uint32_t identity = 0;
};

/// The programs of one target: of what devices accept.
struct BundledTarget {
  /// Without a compiler.
  Identity identity = {};
  /// Identity::target_digest().
  Digest digest = {};
  /// Its programs are these places of the index.
  std::size_t first = 0;
  std::size_t count = 0;
};

/// A bundle that is open for reading. Its index is in memory. Immutable, so safe from any thread.
class BundleFile {
 public:
  /// Reads and checks the index: its checksum, and that every entry is in the file and overlaps no other. With
  /// `trust`, the index needs a signature by one of these keys. Fails with io, with damaged, with unsupported for a
  /// newer format, and with untrusted.
  static Result<std::shared_ptr<const BundleFile>> open(const std::filesystem::path& path,
                                                        const TrustList* trust = nullptr);
  /// Opens a bundle that is a part of another file, such as an executable. `name` is for messages. It may be
  /// shorter than `size`: bytes() says how long it is.
  static Result<std::shared_ptr<const BundleFile>> open_part(base::FileHandle file, std::string name,
                                                             std::uint64_t offset, std::uint64_t size,
                                                             const TrustList* trust = nullptr);

  /// Its path, for messages.
  const std::string& name() const noexcept;
  /// The file as it was when it was opened.
  const struct stat& status() const noexcept;
  std::uint64_t bytes() const noexcept;
  /// Sorted by digest.
  std::span<const BundledTarget> targets() const noexcept;
  /// What compiled the programs: the targets, each with its compilers.
  std::span<const Identity> identities() const noexcept;
  /// A JSON object about the bundle, as its writer gave it: not checked.
  const std::string& facts() const noexcept;
  /// The number of programs, for all targets.
  std::size_t size() const noexcept;
  /// The program at this place of the index. Those of each target are sorted by their keys.
  BundledProgram program(std::size_t place) const;
  /// For a program whose request can be found without the headers of a toolkit, that digest.
  std::vector<std::pair<Digest, std::size_t>> digests_without_toolkit() const;

  /// `target` is one of targets().
  std::optional<BundledProgram> find(const BundledTarget& target, const Digest& key) const;
  /// Finds it by Request::digest_without_toolkit().
  std::optional<BundledProgram> find_without_toolkit(const BundledTarget& target, const Digest& digest) const;
  /// Reads a sealed entry. Fails with damaged if its bytes do not have the checksum, also if the file was truncated
  /// or overwritten since, and with io. The checksum is no protection against a malicious writer: the caller passes
  /// the entry to examine_entry(), and compares its digest with BundledProgram::body, which signatures cover.
  Result<std::vector<std::byte>> read(const BundledProgram& program) const;

  bool has_requests() const noexcept;
  /// The requests of its programs, as a record. Those of a bundle that was opened with a list of keys are checked.
  Result<key::RequestRecord> requests() const;
  /// The same from a copy in memory that has the digest of the index, which signatures cover. Fails with damaged if
  /// the requests have another one.
  Result<key::RequestRecord> checked_requests() const;

  /// SHA-256 of the index, which covers all programs and requests, but not the signatures. It is the one in the
  /// header, which verify() compares with the index, as open() does with a list of keys.
  const Digest& digest() const noexcept;
  const std::vector<Signature>& signatures() const noexcept;
  /// What was read when it was opened; verify() compares it with digest().
  const BundleHeader& header() const noexcept;
  std::span<const std::byte> index() const noexcept;
  /// Calls `use` with the pieces of the file between the header and the index.
  Result<void> read_contents(const std::function<Result<void>(std::span<const std::byte>)>& use) const;
  /// Compares everything with its digests: the index, each entry and the requests. Calls `problem` for each one
  /// that is damaged. `ends` is called between the parts, and if it returns true, the rest is not compared.
  void verify(const std::function<void(const std::string& what, const Error& why)>& problem,
              const std::function<bool()>& ends = {}) const;

 private:
  struct Contents;

  explicit BundleFile(std::unique_ptr<const Contents> contents);

 public:
  ~BundleFile();

 private:
  std::unique_ptr<const Contents> contents_;
};

/// An entry for write_bundle().
struct EntryToBundle {
  /// An index into BundleContents::identities.
  std::size_t identity = 0;
  Digest key = {};
  std::optional<Digest> without_toolkit = {};
  /// Returns the sealed entry. Called once.
  std::function<Result<std::vector<std::byte>>()> read = {};
};

struct BundleContents {
  /// In any order; each pair of target and key once.
  std::vector<EntryToBundle> entries = {};
  /// Those that no entry has are left out.
  std::vector<Identity> identities = {};
  /// A record of requests, which is copied as it is; empty if there is none.
  std::filesystem::path record = {};
  /// A JSON object.
  std::string facts = "{}";
  /// A descriptor; once it is readable, write_bundle() fails with cancelled. -1: none.
  int interrupted = -1;
};

/// Writes a bundle beside `path` and renames it, so that readers see the old bundle or the new one. Equal contents
/// and keys give equal bytes. Returns its size. Fails with invalid_request if a target has a key twice, with
/// damaged if an entry is not what its label says, with cancelled, and with io.
Result<std::uint64_t> write_bundle(const std::filesystem::path& path, const BundleContents& contents,
                                   std::span<const SigningKey> keys = {});

/// Adds a signature by each key, in place of an older one of the same name. Signs the index that is in memory, so
/// what the caller checked; the file at bundle.name() is replaced by rename. Fails with io if it is another file by
/// then, with damaged, and with cancelled once `interrupted`, a descriptor, is readable.
Result<void> sign_bundle(const BundleFile& bundle, std::span<const SigningKey> keys, int interrupted = -1);

}  // namespace kiln::store
