#include "store/bundle.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <fmt/format.h>

#include "base/sha256.hpp"
#include "base/try.hpp"
#include "store/bundle_index.hpp"
#include "store/bundle_layout.hpp"

namespace kiln::store {
namespace {

constexpr std::size_t piece_bytes = std::size_t{1} << 20;
constexpr std::size_t shown_key_digits = 12;

Error damaged_bundle(std::string why) { return Error(ErrorCode::damaged, std::move(why)); }

/// A second handle of an open file.
Result<base::FileHandle> second_handle(const base::FileHandle& file) {
  base::FileHandle second(::fcntl(file.get(), F_DUPFD_CLOEXEC, STDERR_FILENO + 1), file.system());
  if (!second) return Error(ErrorCode::io, std::strerror(errno));
  return second;
}

}  // namespace

struct BundleFile::Contents {
  std::string name;
  base::FileHandle file;
  /// The part of the file that may belong to the bundle.
  std::uint64_t offset = 0;
  std::uint64_t limit = 0;
  struct stat when_opened {};
  BundleHeader header = {};
  std::optional<BundleIndex> index = {};
  std::vector<Signature> signatures = {};
  std::uint64_t bytes = 0;
  bool is_trusted = false;

  Result<void> open(std::uint64_t size, const TrustList* trust);
  Result<void> check_signatures(const TrustList& trust);

  /// Reads up to as many bytes as `into` has; fewer at the end of the file.
  Result<std::size_t> read(std::uint64_t place, std::span<std::byte> into) const;
  /// Fails with damaged if there are fewer.
  Result<void> read_all(std::uint64_t place, std::span<std::byte> into, std::string_view what) const;
  /// Calls `use` with the pieces of a part of the bundle.
  Result<void> read_pieces(std::uint64_t place, std::uint64_t size,
                           const std::function<Result<void>(std::span<const std::byte>)>& use) const;
  Result<void> check_entry(std::size_t place) const;
  Result<void> check_record(const std::function<bool()>& has_ended) const;
  enum class Requests { as_they_are, checked };
  Result<key::RequestRecord> requests(Requests wanted) const;
  Result<base::FileHandle> copy_of_record() const;
  Result<void> check_gaps(const std::function<bool()>& has_ended) const;

  bool has_changed() const;
  /// For damage that is found while the bundle is used.
  Error found_damaged(std::string_view what) const;
  Error with_name(const Error& error) const;
};

Result<void> BundleFile::Contents::open(std::uint64_t size, const TrustList* trust) {
  if (file.system().status(file.get(), &when_opened) != 0) return Error(ErrorCode::io, std::strerror(errno));
  if (!S_ISREG(when_opened.st_mode)) return Error(ErrorCode::io, "it is not a regular file");
  const auto file_bytes = static_cast<std::uint64_t>(when_opened.st_size);
  limit = std::min(size, file_bytes - std::min(offset, file_bytes));
  std::array<std::byte, bundle_header_bytes> begin{};
  const std::size_t got = KILN_TRY(read(0, std::span(begin).first(std::min<std::uint64_t>(limit, begin.size()))));
  header = KILN_TRY(BundleHeader::from_bytes(std::span(begin).first(got)));
  // Before the claimed size is allocated.
  const std::uint64_t rest = limit - std::min(header.index_offset, limit);
  if (rest < bundle_signatures_begin_bytes || header.index_bytes > rest - bundle_signatures_begin_bytes)
    return damaged_bundle(fmt::format("it is truncated: it has {} bytes, but its index ends after {}", limit,
                                      header.index_offset + header.index_bytes));
  const std::size_t index_and_more = header.index_bytes + bundle_signatures_begin_bytes;
  auto tail = std::make_unique_for_overwrite<std::byte[]>(index_and_more);
  KILN_TRY(read_all(header.index_offset, {tail.get(), index_and_more}, "its index"));
  const auto index_bytes = std::span(tail.get(), header.index_bytes);
  if (xxh3_128(index_bytes) != header.index_checksum)
    return damaged_bundle("the checksum of its index does not match");
  std::uint32_t signature_bytes = 0;
  std::uint32_t zero = 0;
  std::uint64_t signature_checksum = 0;
  std::memcpy(&signature_bytes, tail.get() + header.index_bytes, sizeof signature_bytes);
  std::memcpy(&zero, tail.get() + header.index_bytes + 4, sizeof zero);
  std::memcpy(&signature_checksum, tail.get() + header.index_bytes + 8, sizeof signature_checksum);
  const std::uint64_t signatures_at = header.index_offset + index_and_more;
  if (signature_bytes > max_signature_bytes || zero != 0) return damaged_bundle("its signatures are malformed");
  if (signature_bytes > limit - signatures_at)
    return damaged_bundle(fmt::format("it is truncated: it has {} bytes, but its signatures end after {}", limit,
                                      signatures_at + signature_bytes));
  std::vector<std::byte> block(signature_bytes);
  KILN_TRY(read_all(signatures_at, block, "its signatures"));
  if (xxh3_64(block) != signature_checksum) return damaged_bundle("the checksum of its signatures does not match");
  auto found = read_signatures(block);
  if (!found) return damaged_bundle("its signatures are malformed");
  signatures = *std::move(found);
  bytes = signatures_at + signature_bytes;
  if (trust != nullptr) {
    if (base::sha256(index_bytes) != header.index_digest)
      return damaged_bundle("its index does not have the SHA-256 of its header");
    const auto signer = trust->verify(signatures, signed_bytes_of_bundle(header.index_digest));
    if (!signer) return signer.error();
    is_trusted = true;
  }
  index = KILN_TRY(BundleIndex::parse(std::move(tail), header));
  return {};
}

Result<std::size_t> BundleFile::Contents::read(std::uint64_t place, std::span<std::byte> into) const {
  std::size_t filled = 0;
  while (filled < into.size()) {
    const ssize_t got = file.system().read_at(file.get(), into.data() + filled, into.size() - filled,
                                              static_cast<off_t>(offset + place + filled));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Error(ErrorCode::io, std::strerror(errno));
    if (got == 0) break;
    filled += static_cast<std::size_t>(got);
  }
  return filled;
}

Result<void> BundleFile::Contents::read_all(std::uint64_t place, std::span<std::byte> into,
                                            std::string_view what) const {
  if (KILN_TRY(read(place, into)) != into.size())
    return damaged_bundle(fmt::format("the file ends within {}", what));
  return {};
}

Result<void> BundleFile::Contents::read_pieces(
    std::uint64_t place, std::uint64_t size,
    const std::function<Result<void>(std::span<const std::byte>)>& use) const {
  std::vector<std::byte> piece(std::min<std::uint64_t>(size, piece_bytes));
  while (size > 0) {
    const auto part = std::span(piece).first(std::min<std::uint64_t>(size, piece.size()));
    KILN_TRY(read_all(place, part, "it"));
    KILN_TRY(use(part));
    place += part.size();
    size -= part.size();
  }
  return {};
}

bool BundleFile::Contents::has_changed() const {
  struct stat now {};
  return file.system().status(file.get(), &now) == 0 &&
         (now.st_size != when_opened.st_size || now.st_mtim.tv_sec != when_opened.st_mtim.tv_sec ||
          now.st_mtim.tv_nsec != when_opened.st_mtim.tv_nsec);
}

Error BundleFile::Contents::found_damaged(std::string_view what) const {
  if (has_changed())
    return Error(
        ErrorCode::damaged,
        fmt::format("the bundle {} has changed since it was opened, and {}; replace bundles by rename, and "
                    "restart the application",
                    name, what));
  return Error(ErrorCode::damaged,
               fmt::format("the bundle {} is damaged: {}; bake it or copy it again", name, what));
}

Error BundleFile::Contents::with_name(const Error& error) const {
  if (error.code() == ErrorCode::untrusted)
    return Error(error.code(), fmt::format("the bundle {} is not trusted: {}", name, error.message()));
  return Error(error.code(), fmt::format("the bundle {} cannot be used: {}", name, error.message()));
}

BundleFile::BundleFile(std::unique_ptr<const Contents> contents) : contents_(std::move(contents)) {}
BundleFile::~BundleFile() = default;

Result<std::shared_ptr<const BundleFile>> BundleFile::open(const std::filesystem::path& path,
                                                           const TrustList* trust) {
  const base::FileSystem& system = base::FileSystem::system();
  // O_NONBLOCK: a FIFO must not block.
  base::FileHandle file(system.open(AT_FDCWD, path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0),
                        system);
  if (!file) return base::system_error("open the bundle", path);
  auto bundle = KILN_TRY(open_part(std::move(file), path.string(), 0, UINT64_MAX, trust));
  const Contents& contents = *bundle->contents_;
  if (contents.bytes != contents.limit)
    return contents.with_name(
        damaged_bundle(fmt::format("it has {} bytes after its end", contents.limit - contents.bytes)));
  return bundle;
}

Result<std::shared_ptr<const BundleFile>> BundleFile::open_part(base::FileHandle file, std::string name,
                                                                std::uint64_t offset, std::uint64_t size,
                                                                const TrustList* trust) {
  auto contents =
      std::make_unique<Contents>(Contents{.name = std::move(name), .file = std::move(file), .offset = offset});
  if (auto opened = contents->open(size, trust); !opened) return contents->with_name(opened.error());
  return std::shared_ptr<const BundleFile>(new BundleFile(std::move(contents)));
}

const std::string& BundleFile::name() const noexcept { return contents_->name; }
std::uint64_t BundleFile::bytes() const noexcept { return contents_->bytes; }
std::span<const BundledTarget> BundleFile::targets() const noexcept { return contents_->index->targets(); }
std::span<const Identity> BundleFile::identities() const noexcept { return contents_->index->identities(); }
const std::string& BundleFile::facts() const noexcept { return contents_->index->facts(); }
std::size_t BundleFile::size() const noexcept { return contents_->index->size(); }
BundledProgram BundleFile::program(std::size_t place) const { return contents_->index->program(place); }
bool BundleFile::has_requests() const noexcept { return contents_->header.record_bytes != 0; }
const Digest& BundleFile::digest() const noexcept { return contents_->header.index_digest; }
const std::vector<Signature>& BundleFile::signatures() const noexcept { return contents_->signatures; }
const struct stat& BundleFile::status() const noexcept { return contents_->when_opened; }
const BundleHeader& BundleFile::header() const noexcept { return contents_->header; }
std::span<const std::byte> BundleFile::index() const noexcept { return contents_->index->bytes(); }

Result<void> BundleFile::read_contents(const std::function<Result<void>(std::span<const std::byte>)>& use) const {
  return contents_->read_pieces(bundle_header_bytes, header().index_offset - bundle_header_bytes, use);
}

std::vector<std::pair<Digest, std::size_t>> BundleFile::digests_without_toolkit() const {
  return contents_->index->digests_without_toolkit();
}

std::optional<BundledProgram> BundleFile::find(const BundledTarget& target, const Digest& key) const {
  return contents_->index->find(target, key);
}

std::optional<BundledProgram> BundleFile::find_without_toolkit(const BundledTarget& target,
                                                               const Digest& digest) const {
  return contents_->index->find_without_toolkit(target, digest);
}

Result<std::vector<std::byte>> BundleFile::read(const BundledProgram& program) const {
  std::vector<std::byte> sealed(program.size);
  const auto got = contents_->read(program.offset, sealed);
  const auto what = [&program](std::string_view is_so) {
    return fmt::format("its program with the key {} {}", program.key.hex(shown_key_digits), is_so);
  };
  if (!got) return contents_->with_name(got.error());
  if (*got != sealed.size()) return contents_->found_damaged(what("is cut off"));
  if (xxh3_64(sealed) != program.checksum) return contents_->found_damaged(what("does not have its checksum"));
  if (!std::ranges::equal(std::span(sealed).subspan(sealed_digest_at, program.body.bytes.size()),
                          program.body.bytes))
    return contents_->found_damaged(what("is not the one that the index names"));
  return sealed;
}

Result<key::RequestRecord> BundleFile::requests() const {
  return contents_->requests(contents_->is_trusted ? Contents::Requests::checked : Contents::Requests::as_they_are);
}

Result<key::RequestRecord> BundleFile::checked_requests() const {
  return contents_->requests(Contents::Requests::checked);
}

Result<key::RequestRecord> BundleFile::Contents::requests(Requests wanted) const {
  if (header.record_bytes == 0)
    return Error(ErrorCode::unsupported, fmt::format("the bundle {} has no requests", name));
  struct stat now {};
  // A record that is cut off would look like one that is being written.
  if (file.system().status(file.get(), &now) == 0 && static_cast<std::uint64_t>(now.st_size) < offset + bytes)
    return found_damaged("its requests are cut off");
  const bool is_copied = wanted == Requests::checked;
  auto from = is_copied ? copy_of_record() : second_handle(file);
  if (!from) return with_name(from.error());
  return key::RequestRecord::read_part(*std::move(from), name, is_copied ? 0 : offset + header.record_offset,
                                       header.record_bytes);
}

/// A copy in memory that nobody can change, because the signature covers the record only as it is now.
Result<base::FileHandle> BundleFile::Contents::copy_of_record() const {
  const base::FileHandle created(::memfd_create("kiln-requests", MFD_CLOEXEC));
  if (!created)
    return Error(ErrorCode::io, fmt::format("cannot create a file in memory: {}", std::strerror(errno)));
  // The first one may have the number of a closed standard stream.
  auto copy = KILN_TRY(second_handle(created));
  base::Sha256 hash;
  KILN_TRY(
      read_pieces(header.record_offset, header.record_bytes, [&](std::span<const std::byte> piece) -> Result<void> {
        hash.add(piece);
        if (!base::write_all(copy, piece)) return Error(ErrorCode::io, std::strerror(errno));
        return {};
      }));
  if (hash.finish() != index->record_digest())
    return damaged_bundle("its requests do not have the SHA-256 of its index");
  return copy;
}

void BundleFile::verify(const std::function<void(const std::string& what, const Error& why)>& problem,
                        const std::function<bool()>& ends) const {
  const auto report = [&problem](const std::string& what, const Result<void>& result) {
    if (!result && result.error().code() != ErrorCode::cancelled) problem(what, result.error());
  };
  const std::function<bool()> has_ended = [&ends] { return ends && ends(); };
  const Contents& contents = *contents_;
  if (base::sha256(contents.index->bytes()) != contents.header.index_digest)
    problem("the index", damaged_bundle("it does not have the SHA-256 of the header"));
  for (std::size_t place = 0; place < size() && !has_ended(); ++place)
    report(fmt::format("the program with the key {}", program(place).key.hex(shown_key_digits)),
           contents.check_entry(place));
  if (has_requests()) report("the requests", contents.check_record(has_ended));
  report("the space between the programs", contents.check_gaps(has_ended));
}

Result<void> BundleFile::Contents::check_entry(std::size_t place) const {
  const BundledProgram program = index->program(place);
  std::vector<std::byte> sealed(program.size);
  KILN_TRY(read_all(program.offset, sealed, "it"));
  if (xxh3_64(sealed) != program.checksum) return damaged_bundle("its checksum does not match");
  const auto examined = KILN_TRY(examine_entry(sealed));
  KILN_TRY(unpack_entry(examined));
  const Identity& identity = index->identities()[program.identity];
  if (examined.body_digest != program.body || examined.label.key != program.key ||
      examined.label.identity != identity.digest() || examined.label.target != identity.target_digest())
    return damaged_bundle("it is not the program that the index names");
  return {};
}

Result<void> BundleFile::Contents::check_record(const std::function<bool()>& has_ended) const {
  base::Sha256 hash;
  KILN_TRY(
      read_pieces(header.record_offset, header.record_bytes, [&](std::span<const std::byte> piece) -> Result<void> {
        if (has_ended()) return Error(ErrorCode::cancelled, "");
        hash.add(piece);
        return {};
      }));
  if (hash.finish() != index->record_digest()) return damaged_bundle("they do not have the SHA-256 of the index");
  return {};
}

/// The digests do not cover what is between the entries.
Result<void> BundleFile::Contents::check_gaps(const std::function<bool()>& has_ended) const {
  std::uint64_t end = bundle_header_bytes;
  const auto check = [&](std::uint64_t next) {
    return read_pieces(end, next - end, [&](std::span<const std::byte> piece) -> Result<void> {
      if (has_ended()) return Error(ErrorCode::cancelled, "");
      if (std::ranges::any_of(piece, [](std::byte each) { return each != std::byte{0}; }))
        return damaged_bundle("it has other bytes than zeros");
      return {};
    });
  };
  for (std::size_t place = 0; place < index->size(); ++place) {
    const BundledProgram program = index->program(place);
    KILN_TRY(check(program.offset));
    end = program.offset + program.size;
  }
  if (header.record_bytes != 0) {
    KILN_TRY(check(header.record_offset));
    end = header.record_offset + header.record_bytes;
  }
  return check(header.index_offset);
}

}  // namespace kiln::store
