#include "store/entry_file.hpp"

#include <cstring>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/resource.h>

#include "base/bytes.hpp"
#include "base/sha256.hpp"
#include "fakes/child.hpp"
#include "store/samples.hpp"

namespace kiln::store {
namespace {

using Bytes = std::vector<std::byte>;

// Where the fields stand, by docs/format.md.
constexpr std::size_t version_at = 8;
constexpr std::size_t header_bytes_at = 12;
constexpr std::size_t checksum_at = 16;
constexpr std::size_t covered_at = 48;
constexpr std::size_t codec_at = 116;
constexpr std::size_t raw_bytes_at = 120;
constexpr std::size_t facts_bytes_at = 128;
constexpr std::size_t payload_bytes_at = 136;
constexpr std::size_t compile_time_at = 144;
constexpr std::size_t created_at = 152;
constexpr std::size_t header_bytes = 176;

const Digest key = base::sha256("key");
const Digest identity = base::sha256("identity");

Bytes encoded(const std::string& binary) { return encode_entry(key, identity, sample_entry(binary)); }

/// Puts a number into a file as a writer with that mistake would: the checksum fits.
template <class T>
Bytes forged(Bytes file, std::size_t at, T value) {
  std::memcpy(file.data() + at, &value, sizeof value);
  const Digest digest = base::sha256(std::span(file).subspan(covered_at));
  std::memcpy(file.data() + checksum_at, digest.bytes.data(), digest.bytes.size());
  return file;
}

/// Why a file is damaged; "sound" where it is not.
std::string damage(std::span<const std::byte> file) {
  const auto decoded = decode_entry(file);
  if (decoded) return "sound";
  return decoded.error().code() == ErrorCode::damaged ? decoded.error().message() : "not called damaged";
}

/// What decoding says, and whether it took little memory to find out.
std::string damage_in_little_memory(const Bytes& file) {
  return fakes::in_child([&file]() -> std::string {
    rusage before{};
    rusage after{};
    getrusage(RUSAGE_SELF, &before);
    const std::string why = damage(file);
    getrusage(RUSAGE_SELF, &after);
    const long grown = after.ru_maxrss - before.ru_maxrss;
    return grown < 100'000 ? why : "it took " + std::to_string(grown) + " kB to find out: " + why;
  });
}

TEST(EntryFile, ComesBackAsItWas) {
  const std::string megabytes = incompressible(5'000'000);
  for (const std::string& binary : {std::string(), std::string("x"), std::string("\0", 1),
                                    std::string(100'000, 'a'), incompressible(1000), megabytes}) {
    const Entry entry = sample_entry(binary);
    const auto decoded = decode_entry(encode_entry(key, identity, entry));
    ASSERT_TRUE(decoded) << decoded.error().message();
    EXPECT_EQ(decoded->key, key);
    EXPECT_EQ(decoded->identity, identity);
    EXPECT_TRUE(decoded->entry.binary.bytes == entry.binary.bytes) << binary.size() << " bytes";
    EXPECT_EQ(decoded->entry.binary.format, entry.binary.format);
    EXPECT_EQ(decoded->entry.compile_time, entry.compile_time);
    EXPECT_EQ(decoded->entry.created, entry.created);
    EXPECT_EQ(decoded->entry.gflops, entry.gflops);
    EXPECT_EQ(decoded->entry.gbps, entry.gbps);
    EXPECT_EQ(decoded->entry.facts, entry.facts);
  }
}

TEST(EntryFile, WithoutFactsOrWithBytesForFactsComesBackAsItWas) {
  for (const std::string& facts : {std::string(), std::string("\0\xff{", 3), std::string(100'000, 'f')}) {
    Entry entry = sample_entry("binary");
    entry.facts = facts;
    const auto decoded = decode_entry(encode_entry(key, identity, entry));
    ASSERT_TRUE(decoded);
    EXPECT_EQ(decoded->entry.facts, facts);
  }
}

TEST(EntryFile, IsPackedWhereThatPays) {
  EXPECT_LT(encoded(std::string(100'000, 'a')).size(), 1000U);
  EXPECT_EQ(encoded(incompressible(1000)).size(), header_bytes + sample_entry("").facts.size() + 1000);
  EXPECT_EQ(encoded("").size(), header_bytes + sample_entry("").facts.size());
}

TEST(EntryFile, IsDamagedByEveryBitThatFlips) {
  for (const std::string& binary : {std::string("tiny"), std::string(500, 'a')}) {
    Bytes file = encoded(binary);
    ASSERT_EQ(damage(file), "sound");
    for (std::size_t bit = 0; bit < 8 * file.size(); ++bit) {
      file[bit / 8] ^= static_cast<std::byte>(1U << bit % 8);
      const std::string why = damage(file);
      ASSERT_TRUE(why != "sound" && why != "not called damaged") << "bit " << bit << ": " << why;
      file[bit / 8] ^= static_cast<std::byte>(1U << bit % 8);
    }
  }
}

TEST(EntryFile, IsDamagedByTruncationAtEveryLength) {
  const Bytes file = encoded("tiny");
  for (std::size_t length = 0; length < file.size(); ++length) {
    // A copy of just that length, so that reading past its end is noticed.
    const Bytes part(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(length));
    ASSERT_NE(damage(part), "sound") << length;
  }
}

TEST(EntryFile, IsDamagedByWhatFollowsIt) {
  for (const std::string& more : {std::string(1, '\0'), std::string("garbage"), std::string(10'000, 'x')}) {
    Bytes file = encoded("tiny");
    const Bytes tail = fakes::bytes_of(more);
    file.insert(file.end(), tail.begin(), tail.end());
    EXPECT_NE(damage(file), "sound");
    EXPECT_NE(damage(forged(file, created_at, std::int64_t{0})), "sound") << "with a checksum that fits";
  }
}

TEST(EntryFile, IsDamagedWhereItIsSomethingElse) {
  for (const std::string& text : {std::string(1000, '\0'), std::string(1000, '\xff'), std::string(1000, 'K'),
                                  std::string("KILNBIN\n") + std::string(992, '\0'), incompressible(100'000)})
    EXPECT_NE(damage(fakes::bytes_of(text)), "sound");
}

TEST(EntryFile, OfAnotherVersionSaysSo) {
  for (const std::uint32_t version : {0U, 1U, 3U, 0xffffffffU}) {
    const std::string why = damage(forged(encoded("tiny"), version_at, version));
    EXPECT_NE(why.find("version " + std::to_string(version)), std::string::npos) << why;
  }
}

TEST(EntryFile, WithAHeaderOfAnotherSizeIsDamaged) {
  for (const std::uint32_t size : {0U, 175U, 177U, 0xffffffffU})
    EXPECT_NE(damage(forged(encoded("tiny"), header_bytes_at, size)), "sound");
}

TEST(EntryFile, WithAnUnknownCodecIsDamaged) {
  for (const std::uint32_t codec : {2U, 77U, 0xffffffffU}) {
    const std::string why = damage(forged(encoded("tiny"), codec_at, codec));
    EXPECT_NE(why.find(std::to_string(codec)), std::string::npos) << why;
  }
}

TEST(EntryFile, WithTheOtherCodecIsDamaged) {
  EXPECT_NE(damage(forged(encoded("tiny"), codec_at, std::uint32_t{1})), "sound");
  EXPECT_NE(damage(forged(encoded(std::string(500, 'a')), codec_at, std::uint32_t{0})), "sound");
}

TEST(EntryFile, ThatClaimsAbsurdSizesIsDamagedAndTakesNoMemory) {
  constexpr std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
  for (const std::string& binary : {std::string("tiny"), std::string(500, 'a')}) {
    for (const std::size_t at : {raw_bytes_at, facts_bytes_at, payload_bytes_at}) {
      for (const std::uint64_t size :
           {std::uint64_t{0}, std::uint64_t{1}, max_entry_bytes + 1, std::uint64_t{1} << 40, std::uint64_t{1} << 63,
            most - header_bytes, most - 1, most}) {
        const std::string why = damage_in_little_memory(forged(encoded(binary), at, size));
        EXPECT_TRUE(why.starts_with("it ") && !why.starts_with("it took") && !why.starts_with("it ended"))
            << "field at " << at << ", " << size << " bytes: " << why;
      }
    }
  }
}

TEST(EntryFile, WhosePartsAddUpOnlyByOverflowIsDamaged) {
  // One size too large and the other so much too small that their sum, modulo 2^64, is right.
  const Bytes file = encoded("tiny");
  const std::uint64_t rest = file.size() - header_bytes;
  const Bytes one = forged(file, facts_bytes_at, std::numeric_limits<std::uint64_t>::max() - 9);
  EXPECT_NE(damage(forged(one, payload_bytes_at, rest + 10)), "sound");
}

TEST(EntryFile, ThatClaimsToUnpackToTheMostAllowedTakesNoMemoryBeforeItIsKnownToBeWrong) {
  const std::string why =
      damage_in_little_memory(forged(encoded(std::string(500, 'a')), raw_bytes_at, max_entry_bytes));
  EXPECT_EQ(why, "it does not unpack to what it claims");
}

TEST(EntryFile, WhosePackedPartClaimsTheMostAllowedAsWellTakesNoMemoryEither) {
  // A zstd frame by hand: its magic, eight bytes for the size, and one block that repeats a byte ten times.
  base::ByteWriter frame;
  frame.number(std::uint32_t{0xfd2fb528});
  frame.number(std::uint8_t{0xe0});
  frame.number(max_entry_bytes);
  frame.number(std::uint32_t{10U << 3 | 1U << 1 | 1U | 'a' << 24});
  Bytes file = encoded("");
  file.insert(file.end(), frame.bytes().begin(), frame.bytes().end());
  file = forged(file, payload_bytes_at, static_cast<std::uint64_t>(frame.bytes().size()));
  file = forged(forged(file, codec_at, std::uint32_t{1}), raw_bytes_at, max_entry_bytes);
  EXPECT_EQ(damage_in_little_memory(file), "it does not unpack to what it claims");
}

TEST(EntryFile, ThatPacksBestOfAllComesBackAsItWas) {
  const std::string binary(5'000'000, 'a');
  const auto decoded = decode_entry(encoded(binary));
  ASSERT_TRUE(decoded);
  EXPECT_EQ(fakes::text_of(decoded->entry.binary.bytes), binary);
}

TEST(EntryFile, WithAbsurdTimesIsReadOrDamagedButNothingWorse) {
  for (const std::int64_t time : {std::numeric_limits<std::int64_t>::min(), std::int64_t{-1}, std::int64_t{0},
                                  std::int64_t{1} << 40, std::numeric_limits<std::int64_t>::max()}) {
    for (const std::size_t at : {compile_time_at, created_at}) {
      const Bytes file = forged(encoded("tiny"), at, time);
      const std::string answer = fakes::in_child([&file]() -> std::string {
        const auto decoded = decode_entry(file);
        return decoded && meta_of(*decoded, file.size()).empty() ? "no meta" : "fine";
      });
      EXPECT_EQ(answer, "fine") << "field at " << at << ": " << time;
    }
  }
}

TEST(EntryFile, TellsOfNoCompilerThatTookLongerThanADay) {
  for (const std::int64_t absurd : {std::numeric_limits<std::int64_t>::min(), std::int64_t{-1},
                                    std::int64_t{1} << 50, std::numeric_limits<std::int64_t>::max()}) {
    const auto decoded = decode_entry(forged(encoded("tiny"), compile_time_at, absurd));
    ASSERT_TRUE(decoded) << absurd;
    EXPECT_EQ(decoded->entry.compile_time.count(), 0) << absurd;
  }
}

TEST(EntryFile, KeepsTheTimeItWasMadeAndNoOther) {
  for (const std::int64_t seconds : {std::int64_t{-86'400}, std::int64_t{0}, std::int64_t{4'102'444'800}}) {
    Entry entry = sample_entry("x");
    entry.created = std::chrono::system_clock::time_point(std::chrono::seconds(seconds));
    const auto decoded = decode_entry(encode_entry(key, identity, entry));
    ASSERT_TRUE(decoded);
    EXPECT_EQ(decoded->entry.created, entry.created);
  }
}

TEST(EntryFile, WithAPackedPartThatUnpacksToSomethingElseIsDamaged) {
  // The right size, the right checksum, and a zstd frame cut short.
  Bytes file = encoded(std::string(500, 'a'));
  const std::uint64_t payload = file.size() - header_bytes - sample_entry("").facts.size();
  file.pop_back();
  EXPECT_NE(damage(forged(file, payload_bytes_at, payload - 1)), "sound");
}

TEST(EntryFile, IsDecodedByThreadsAtOnce) {
  const Bytes packed = encoded(std::string(50'000, 'a'));
  const Bytes plain = encoded(incompressible(50'000));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) {
        EXPECT_EQ(damage(packed), "sound");
        EXPECT_EQ(damage(plain), "sound");
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

TEST(EntryFile, IsDecodedByWhatItsThreadDestroysLast) {
  const Bytes packed = encoded(std::string(50'000, 'a'));
  const std::string answer = fakes::in_child([&packed]() -> std::string {
    std::string last;
    std::thread([&] {
      struct Last {
        const Bytes& file;
        std::string& answer;
        ~Last() { answer = damage(file); }
      };
      // Made before the thread first decodes anything, and so destroyed after all that was made for that.
      static thread_local const Last kept{packed, last};
      static_cast<void>(damage(packed));
    }).join();
    return last;
  });
  EXPECT_EQ(answer, "sound");
}

}  // namespace
}  // namespace kiln::store
