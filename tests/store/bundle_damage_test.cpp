#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fakes/damage.hpp"
#include "fakes/faulty_file_system.hpp"
#include "store/bundle_fixture.hpp"

// Bundles that are damaged, malicious, or changed while they are open.
namespace kiln::store {
namespace {

class BundleDamage : public BundleTest {
 protected:
  /// What a bundle with another index, but right checksums, is refused for.
  std::string refusal_of_index(const std::function<void(std::string& index, const IndexPlaces& at)>& change) const {
    return refusal_of(with_index(whole_, [&change](std::string& index) { change(index, IndexPlaces(index)); }));
  }

  const std::string whole_ = write_samples();
};

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

TEST_F(BundleDamage, TruncatedAtAnyLengthIsRefused) {
  fakes::Sweep sweep;
  fakes::cut_at_every_length(whole_, sweep, [this](const std::string& bytes, const std::string& what) {
    fakes::overwrite(path_, bytes);
    const auto opened = BundleFile::open(path_);
    ASSERT_FALSE(opened) << what;
    EXPECT_EQ(opened.error().code(), ErrorCode::damaged) << what;
    EXPECT_HAS(opened.error().message(), "the bundle " + path_.string() + " cannot be used: it is ");
  });
  EXPECT_EQ(sweep.cases, whole_.size());
}

TEST_F(BundleDamage, EveryFlippedBitOfHeaderIndexAndSignaturesIsFound) {
  const SigningKey key = SigningKey::generate("ci").value();
  const std::string bundle = write_samples(std::span(&key, 1));
  const BundleHeader header = header_of(bundle);
  fakes::Sweep sweep;
  fakes::flip_every_bit(bundle, sweep, [&](const std::string& bytes, const std::string& what) {
    fakes::overwrite(path_, bytes);
    const auto opened = BundleFile::open(path_);
    if (bytes.compare(0, bundle_header_bytes, bundle, 0, bundle_header_bytes) != 0 ||
        bytes.compare(header.index_offset, std::string::npos, bundle, header.index_offset) != 0) {
      ASSERT_FALSE(opened) << what;
      const ErrorCode code = opened.error().code();
      EXPECT_TRUE(code == ErrorCode::damaged || code == ErrorCode::unsupported) << what;
      return;
    }
    if (!sweep.closely()) return;
    ASSERT_TRUE(opened) << what;
    std::size_t damaged = 0;
    for (const SampleProgram& program : sample_programs()) {
      const auto found = (*opened)->find(target_of(**opened, program.identity), sample_key(program.name).digest);
      ASSERT_TRUE(found) << what;
      const auto sealed = (*opened)->read(*found);
      if (sealed)
        EXPECT_EQ(*sealed, seal_sample(program)) << what;
      else
        damaged += sealed.error().code() == ErrorCode::damaged ? 1 : 2;
    }
    EXPECT_LE(damaged, 1U) << what;
    std::size_t problems = 0;
    (*opened)->verify([&problems](const std::string&, const Error&) { ++problems; });
    EXPECT_EQ(problems, 1U) << what << ": verify() finds every change";
  });
  EXPECT_EQ(sweep.cases, bundle.size() * 8);
}

TEST_F(BundleDamage, AnIndexThatIsNotInOrderIsRefused) {
  const auto swap_rows = [](std::string& index, std::size_t one, std::size_t other, std::size_t bytes) {
    const std::string row = index.substr(one, bytes);
    index.replace(one, bytes, index, other, bytes);
    index.replace(other, bytes, row);
  };
  const std::size_t larger = target_of(*open(), sm_90).first;
  EXPECT_HAS(refusal_of_index(
                 [&](auto& index, const auto& at) { swap_rows(index, at.row(larger), at.row(larger + 1), 32); }),
             "not in the order of their keys");
  EXPECT_HAS(refusal_of_index([&](auto& index, const auto& at) {
               index.replace(at.row(larger + 1), 32, index, at.row(larger), 32);
             }),
             "not in the order of their keys");
  EXPECT_HAS(refusal_of_index([&](auto& index, const auto& at) {
               swap_rows(index, at.second_row(0), at.second_row(1), index_second_row_bytes);
             }),
             "its second table is not in order");
  EXPECT_HAS(refusal_of_index([&](auto& index, const auto& at) {
               swap_rows(index, at.targets, at.targets + index_target_bytes, index_target_bytes);
             }),
             "its targets are not those of its identities");
}

TEST_F(BundleDamage, EntriesThatOverlapAreRefused) {
  const auto place_second_at =
      [this](const std::function<std::uint64_t(std::uint64_t first, std::uint64_t size)>& place) {
        return refusal_of_index([&](auto& index, const auto& at) {
          const auto first = number_in<std::uint64_t>(index, at.row(0) + 64);
          const auto size = number_in<std::uint32_t>(index, at.row(0) + 80);
          set_number<std::uint64_t>(index, at.row(1) + 64, place(first, size));
        });
      };
  EXPECT_HAS(place_second_at([](auto first, auto) { return first; }), "overlaps the one before it");
  EXPECT_HAS(place_second_at([](auto first, auto) { return first + 64; }), "overlaps the one before it");
  EXPECT_HAS(place_second_at([](auto, auto) { return std::uint64_t{0}; }), "overlaps the one before it");
  EXPECT_HAS(place_second_at([](auto first, auto size) { return first + size; }), "is not aligned");
  EXPECT_HAS(place_second_at([](auto, auto) { return UINT64_MAX - 63; }), "where it cannot be");
  EXPECT_HAS(
      refusal_of_index([](auto& index, const auto& at) { set_number<std::uint64_t>(index, at.row(0) + 64, 0); }),
      "overlaps");
}

TEST_F(BundleDamage, WhatClaimsTooMuchIsRefusedBeforeMemoryIsTaken) {
  constexpr std::uint64_t ten_gigabytes = 10'000'000'000;
  const auto refusal_of_header = [this](const std::function<void(BundleHeader&)>& change) {
    return refusal_of(with_header(whole_, change));
  };
  EXPECT_HAS(refusal_of_header([](auto& header) { header.index_bytes = ten_gigabytes; }),
             "it claims an index of 10000000000 bytes");
  EXPECT_HAS(refusal_of_header([](auto& header) { header.index_bytes = UINT64_MAX; }), "it claims an index of");
  EXPECT_HAS(refusal_of_header([](auto& header) { header.index_bytes = 0; }), "it claims an index of 0 bytes");
  EXPECT_HAS(refusal_of_header([](auto& header) { header.index_offset = 64 * ten_gigabytes; }), "it is truncated");
  EXPECT_HAS(refusal_of_header([](auto& header) { header.index_offset = UINT64_MAX - 63; }),
             "where they cannot be");
  EXPECT_HAS(refusal_of_header([](auto& header) { header.index_offset += 8; }), "where they cannot be");
  EXPECT_HAS(refusal_of_header([](auto& header) { header.record_bytes = UINT64_MAX; }), "it claims requests of");
  EXPECT_HAS(refusal_of_header([](auto& header) { header.record_bytes = key::max_record_file_bytes; }),
             "where they cannot be");
  EXPECT_HAS(refusal_of_header([](auto& header) { header.record_offset = header.index_offset + 64; }),
             "where they cannot be");
  EXPECT_HAS(refusal_of_header([](auto& header) { header.record_bytes = 0; }), "where they cannot be");
  for (const std::size_t count_at : {0, 4, 8, 12})
    EXPECT_HAS(refusal_of_index(
                   [&](auto& index, const auto&) { set_number<std::uint32_t>(index, count_at, 0xffff'ffff); }),
               count_at == 0 ? "4294967295 identities" : "do not have the size of its index");
  for (const std::size_t size_at : {16, 24})
    EXPECT_HAS(refusal_of_index(
                   [&](auto& index, const auto&) { set_number<std::uint64_t>(index, size_at, UINT64_MAX - 7); }),
               "do not have the size of its index");
  // An entry, which is then read into memory.
  EXPECT_HAS(refusal_of_index([](auto& index, const auto& at) {
               set_number<std::uint32_t>(index, at.row(4) + 80, 0xffff'ffff);
             }),
             "it claims a program of 4294967295 bytes");
  EXPECT_HAS(
      refusal_of_index([](auto& index, const auto& at) { set_number<std::uint32_t>(index, at.row(4) + 80, 0); }),
      "it claims a program of 0 bytes");
  // A file that has the claimed size, but only as a hole.
  fakes::write_file(path_, with_header(whole_, [](auto& header) { header.index_bytes = ten_gigabytes; }));
  ASSERT_EQ(truncate(path_.c_str(), 2 * ten_gigabytes), 0);
  EXPECT_HAS(refusal(), "it claims an index of 10000000000 bytes");
}

TEST_F(BundleDamage, RequestsAreThoseOfTheIndex) {
  const BundleHeader header = header_of(whole_);
  const auto with_record = [](std::uint64_t offset, std::uint64_t bytes) {
    return [=](BundleHeader& changed) {
      changed.record_offset = offset;
      changed.record_bytes = bytes;
    };
  };
  const std::string size = std::to_string(header.record_bytes);
  EXPECT_HAS(refusal_of(with_header(whole_, with_record(0, 0))),
             "its header claims requests of 0 bytes, but its index of " + size);
  EXPECT_HAS(refusal_of(with_header(whole_, with_record(header.record_offset, header.record_bytes - 1))),
             "but its index of " + size);
  const std::size_t digest_at = 32;
  EXPECT_HAS(refusal_of_index([](auto& index, const auto&) { index.replace(digest_at, 32, 32, '\0'); }),
             "the SHA-256 of its requests does not match their size");
  const auto without_size = with_index(whole_, [](auto& index) { set_number<std::uint64_t>(index, 64, 0); });
  EXPECT_HAS(refusal_of(with_header(without_size, with_record(0, 0))),
             "the SHA-256 of its requests does not match their size");
}

TEST_F(BundleDamage, RequestsInAHoleOfGigabytesAreRefused) {
  const std::uint64_t hole = std::uint64_t{3} << 30;
  // The index and what follows it are behind the hole.
  const BundleHeader header = header_of(whole_);
  const auto index = with_index(whole_, [&](auto& changed) { set_number(changed, 64, hole); });
  const auto moved = with_header(index, [&](auto& changed) {
    changed.index_offset = header.record_offset + hole;
    changed.record_bytes = hole;
  });
  fakes::write_file(path_, moved.substr(0, header.record_offset));
  ASSERT_EQ(truncate(path_.c_str(), static_cast<off_t>(header.record_offset + hole)), 0);
  std::ofstream(path_, std::ios::binary | std::ios::app) << moved.substr(header.index_offset);
  EXPECT_HAS(refusal(), "it claims requests of 3221225472 bytes, more than 1073741824");
}

TEST_F(BundleDamage, ReservedBytesOfTheHeaderAreZeros) {
  for (const std::size_t at : {96, 119}) {
    std::string changed = whole_;
    changed[at] = 1;
    set_number(changed, 120, xxh3_64(bytes_in(changed).first(120)));
    EXPECT_HAS(refusal_of(changed), "its header has other bytes than zeros");
  }
}

TEST_F(BundleDamage, NumbersThatLeadNowhereAreRefused) {
  EXPECT_HAS(
      refusal_of_index([](auto& index, const auto& at) { set_number<std::uint32_t>(index, at.row(0) + 84, 3); }),
      "has no identity of its target");
  EXPECT_HAS(refusal_of_index([](auto& index, const auto& at) {
               const auto first = number_in<std::uint32_t>(index, at.row(0) + 84);
               const auto last = number_in<std::uint32_t>(index, at.row(4) + 84);
               set_number(index, at.row(0) + 84, last);
               set_number(index, at.row(4) + 84, first);
             }),
             "has no identity of its target");
  EXPECT_HAS(refusal_of_index(
                 [](auto& index, const auto& at) { set_number<std::uint32_t>(index, at.second_row(0) + 32, 5); }),
             "a row of another target");
  EXPECT_HAS(refusal_of_index(
                 [](auto& index, const auto& at) { set_number<std::uint32_t>(index, at.second_row(0) + 36, 1); }),
             "a row of another target");
  EXPECT_HAS(refusal_of_index([](auto& index, const auto& at) {
               // All programs for one target.
               set_number<std::uint32_t>(index, at.targets + 32, 0);
               set_number<std::uint32_t>(index, at.targets + index_target_bytes + 32, 5);
             }),
             "a target without programs");
  EXPECT_HAS(refusal_of_index(
                 [](auto& index, const auto&) { set_number<std::uint64_t>(index, index_begin_bytes, 1U << 30U); }),
             "its identities are");
  EXPECT_HAS(refusal_of_index([](auto& index, const auto& at) { ++index[at.targets]; }),
             "its targets are not those of its identities");
}

TEST_F(BundleDamage, AnEntryThatIsNotTheOneOfTheIndexIsRefusedWhenItIsRead) {
  const std::string other_body =
      with_index(whole_, [](std::string& index) { ++index[IndexPlaces(index).row(0) + 40]; });
  fakes::write_file(path_, other_body);
  const auto bundle = open();
  const auto read = bundle->read(bundle->program(0));
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code(), ErrorCode::damaged);
  EXPECT_HAS(read.error().message(), "is not the one that the index names");
  EXPECT_TRUE(bundle->read(bundle->program(1)));
  // Its key is found only by those who unpack it.
  fakes::write_file(path_, with_index(whole_, [](std::string& index) { ++index[IndexPlaces(index).row(0) + 31]; }));
  std::string problems;
  open()->verify(
      [&problems](const std::string& what, const Error& why) { problems += what + ": " + why.message(); });
  EXPECT_HAS(problems, "it is not the program that the index names");
}

TEST_F(BundleDamage, OfANewerFormatNamesBothVersions) {
  std::string newer = whole_;
  set_number<std::uint32_t>(newer, 8, 2);
  const std::string message = refusal_of(newer);
  EXPECT_HAS(message, "unsupported: the bundle " + path_.string());
  EXPECT_HAS(message, "it has format 2, but this version of Kiln reads format 1");
}

TEST_F(BundleDamage, OfAnotherKindOfFileIsNamed) {
  EXPECT_HAS(refusal_of(""), "damaged: the bundle " + path_.string() + " cannot be used: it is empty");
  EXPECT_HAS(refusal_of("some text of another program"), "it does not begin as bundles do");
  EXPECT_HAS(refusal_of(fakes::read_file(record_path())), "it does not begin as bundles do");
}

TEST_F(BundleDamage, ReplacedByRenameTheOpenBundleStaysAsItWas) {
  const auto bundle = open();
  write_bundle(path_, contents_of({{sm_90, "conv", "another conv"}})).value();
  EXPECT_EQ(answer_of(*bundle, sm_90, "conv"), "conv for sm_90");
  EXPECT_EQ(answer_of(*bundle, portable, "scan"), "scan in SPIR-V");
  EXPECT_EQ(answer_of(*open(), sm_90, "conv"), "another conv");
  fs::remove(path_);
  EXPECT_EQ(answer_of(*bundle, sm_90, "conv"), "conv for sm_90");
}

TEST_F(BundleDamage, TruncatedWhileOpenIsDamagedForWhatIsMissing) {
  const auto bundle = open();
  const BundledProgram last = bundle->program(4);
  ASSERT_EQ(truncate(path_.c_str(), static_cast<off_t>(last.offset + last.size - 1)), 0);
  EXPECT_TRUE(bundle->read(bundle->program(0)));
  const auto read = bundle->read(last);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code(), ErrorCode::damaged);
  EXPECT_HAS(read.error().message(), "the bundle " + path_.string() + " has changed since it was opened");
  EXPECT_HAS(read.error().message(), "is cut off");
  EXPECT_FALSE(bundle->requests());
  std::size_t problems = 0;
  bundle->verify([&problems](const std::string&, const Error&) { ++problems; });
  EXPECT_EQ(problems, 3U) << "the last program, the requests, and the space before the index";
}

TEST_F(BundleDamage, OverwrittenWhileOpenIsDamaged) {
  const auto bundle = open();
  std::string other = whole_;
  for (std::size_t at = bundle_header_bytes; at < other.size(); ++at) other[at] = static_cast<char>(~other[at]);
  fakes::overwrite(path_, other + "x");
  for (std::size_t place = 0; place < bundle->size(); ++place) {
    const auto read = bundle->read(bundle->program(place));
    ASSERT_FALSE(read);
    EXPECT_EQ(read.error().code(), ErrorCode::damaged);
    EXPECT_HAS(read.error().message(), "has changed since it was opened");
  }
}

TEST_F(BundleDamage, OnTheDiskIsNamedWithTheProgram) {
  std::string damaged = whole_;
  damaged[open()->program(2).offset + 200] ^= 1;
  fakes::write_file(path_, damaged);
  const auto bundle = open();
  const auto read = bundle->read(bundle->program(2));
  ASSERT_FALSE(read);
  EXPECT_HAS(read.error().message(), "the bundle " + path_.string() + " is damaged: its program with the key " +
                                         bundle->program(2).key.hex(12) + " does not have its checksum");
}

TEST_F(BundleDamage, AFailedCallOfTheSystemLeavesTheBundleAsItWas) {
  using Fault = fakes::FaultyFileSystem::Fault;
  const SigningKey key = SigningKey::generate("ci").value();
  const auto names_before = fakes::names_in(folder_.path());
  BundleContents contents = contents_of({{sm_90, "conv", "another conv"}});
  contents.record = folder_.path() / "app.kilnreq";
  const std::vector<std::function<Result<void>()>> calls = {
      [&]() -> Result<void> {
        const auto written = write_bundle(path_, contents);
        return written ? Result<void>() : written.error();
      },
      [&]() -> Result<void> {
        const auto opened = BundleFile::open(path_);
        return opened ? sign_bundle(**opened, std::span(&key, 1)) : opened.error();
      }};
  std::size_t cases = 0;
  for (const auto& call : calls)
    for (std::uint64_t at = 0;; ++at, ++cases) {
      fakes::write_file(path_, whole_);
      const fakes::FaultyFileSystem system({.at = at, .error = ENOSPC});
      const base::ScopedFileSystem scoped(system);
      const auto done = call();
      if (!system.went_wrong()) {
        EXPECT_TRUE(done);
        break;
      }
      // A lost check of a file's size, or of its lock, may be harmless.
      if (done) {
        EXPECT_TRUE(BundleFile::open(path_)) << at;
        continue;
      }
      EXPECT_EQ(done.error().code(), ErrorCode::io) << at;
      EXPECT_HAS(done.error().message(), "No space left") << at;
      EXPECT_EQ(fakes::read_file(path_), whole_) << at;
      EXPECT_EQ(fakes::names_in(folder_.path()), names_before) << at;
    }
  EXPECT_GT(cases, 20U);
  const fakes::FaultyFileSystem system({.at = 0, .fault = Fault::is_short, .from_then_on = true});
  const base::ScopedFileSystem scoped(system);
  for (const auto& call : calls) EXPECT_TRUE(call()) << "short reads and writes are continued";
  EXPECT_EQ(answer_of(*open(), sm_90, "conv"), "another conv");
}

TEST_F(BundleDamage, AFailedReadIsAnErrorOfTheSystemAndNoDamage) {
  for (std::uint64_t at = 0;; ++at) {
    const fakes::FaultyFileSystem system({.at = at, .error = EIO});
    const base::ScopedFileSystem scoped(system);
    const auto opened = BundleFile::open(path_);
    const auto sealed =
        opened ? (*opened)->read((*opened)->program(0)) : Result<std::vector<std::byte>>(opened.error());
    if (!system.went_wrong()) {
      EXPECT_TRUE(sealed);
      break;
    }
    ASSERT_FALSE(sealed) << at;
    EXPECT_EQ(sealed.error().code(), ErrorCode::io) << at;
    EXPECT_HAS(sealed.error().message(), path_.string());
    EXPECT_HAS(sealed.error().message(), "Input/output error");
  }
}

}  // namespace
}  // namespace kiln::store
