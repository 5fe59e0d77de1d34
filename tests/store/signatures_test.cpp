#include "store/signatures.hpp"

#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.hpp"
#include "base/sha256.hpp"
#include "fakes/child.hpp"
#include "fakes/files.hpp"
#include "fakes/set_uid.hpp"
#include "fakes/temporary_folder.hpp"
#include "store/samples.hpp"

namespace kiln::store {
namespace {

using Sealed = std::vector<std::byte>;

constexpr std::size_t preamble_size = 64;

Sealed sealed_sample(const std::string& key = "conv", int device = 0, const std::string& binary = "binary") {
  return seal_entry(label_of(sample_key(key).digest, sample_identity(device)), sample_entry(binary));
}

SigningKey new_key(const std::string& name) { return SigningKey::generate(name).value(); }

Sealed signed_with(const Sealed& sealed, const SigningKey& key) {
  return sign_entry(sealed, std::span(&key, 1)).value();
}

/// The entry as an attacker leaves it who changed the body: with its checksum.
Sealed with_right_checksum(Sealed sealed, std::size_t body_bytes) {
  const Digest digest = base::sha256(std::span(sealed).subspan(preamble_size, body_bytes));
  std::memcpy(sealed.data() + 16, digest.bytes.data(), digest.bytes.size());
  return sealed;
}

/// "signed by NAME", "untrusted: WHY" or "damaged: WHY". Unpacks nothing.
std::string verdict(const TrustList& trust, std::span<const std::byte> sealed) {
  const auto examined = examine_entry(sealed);
  if (!examined) return "damaged: " + examined.error().message();
  const auto signer = trust.verify(*examined);
  if (signer) return "signed by " + *signer;
  return std::string(to_string(signer.error().code())) + ": " + signer.error().message();
}

TrustList trusting(const std::vector<PublicKey>& keys, const std::vector<PublicKey>& revoked = {}) {
  return TrustList(keys, revoked);
}

/// The message of an error; "no error" if there is none.
template <class T>
std::string message_of(const Result<T>& result) {
  return result ? "no error" : result.error().message();
}

mode_t mode_of(const std::filesystem::path& path) {
  struct stat status {};
  EXPECT_EQ(stat(path.c_str(), &status), 0) << path;
  return status.st_mode & 07777U;
}

class Signatures : public testing::Test {
 protected:
  std::filesystem::path user() const { return root_.path() / "user" / "kiln"; }
  std::filesystem::path system() const { return root_.path() / "system" / "kiln"; }
  ConfigFolders folders() const { return {user(), {system()}}; }

  void write(const std::filesystem::path& path, const std::string& text) const {
    fakes::write_file(path, text);
    ASSERT_EQ(chmod(path.c_str(), 0644), 0);
    ASSERT_EQ(chmod(path.parent_path().c_str(), 0755), 0);
  }

  const fakes::TemporaryFolder root_;
  const SigningKey alice_ = new_key("alice");
  const SigningKey bob_ = new_key("bob");
  const SigningKey mallory_ = new_key("mallory");
};

TEST_F(Signatures, AreVerifiedByTheKeyThatMadeThem) {
  const Sealed sealed = signed_with(sealed_sample(), alice_);
  EXPECT_EQ(verdict(trusting({alice_.public_key()}), sealed), "signed by alice");
  EXPECT_TRUE(open_entry(sealed));
  EXPECT_TRUE(is_signed_by(*examine_entry(sealed), alice_.public_key()).value());
  EXPECT_FALSE(is_signed_by(*examine_entry(sealed), bob_.public_key()).value());
}

TEST_F(Signatures, AreOfTheBytesThatTheFormatDescribes) {
  const Sealed sealed = signed_with(sealed_sample(), alice_);
  const auto examined = examine_entry(sealed);
  base::ByteWriter message;
  message.raw(fakes::bytes_of("kiln entry signature 1"));
  message.number(std::uint8_t{0});
  message.raw(sample_key("conv").digest.bytes);
  message.raw(sample_identity().digest().bytes);
  message.raw(base::sha256(std::span(sealed).subspan(preamble_size, examined->body.size())).bytes);
  EVP_PKEY* const key = EVP_PKEY_new_raw_public_key(
      EVP_PKEY_ED25519, nullptr, reinterpret_cast<const unsigned char*>(alice_.public_key().bytes.data()), 32);
  EVP_MD_CTX* const context = EVP_MD_CTX_new();
  ASSERT_EQ(EVP_DigestVerifyInit(context, nullptr, nullptr, nullptr, key), 1);
  EXPECT_EQ(
      EVP_DigestVerify(context, reinterpret_cast<const unsigned char*>(&*(sealed.end() - 64)), 64,
                       reinterpret_cast<const unsigned char*>(message.bytes().data()), message.bytes().size()),
      1);
  EVP_MD_CTX_free(context);
  EVP_PKEY_free(key);
}

TEST_F(Signatures, OfNobodyOrOfAStrangerAreNotTrusted) {
  const auto trust = trusting({alice_.public_key()});
  EXPECT_EQ(verdict(trust, sealed_sample()), "untrusted: it has no signature");
  EXPECT_EQ(verdict(trust, signed_with(sealed_sample(), mallory_)),
            "untrusted: it is signed by mallory, which is not trusted");
  EXPECT_EQ(verdict(trust, signed_with(signed_with(sealed_sample(), mallory_), bob_)),
            "untrusted: it is signed by bob, mallory, none of which is trusted");
  EXPECT_EQ(verdict(trust, signed_with(sealed_sample(), new_key("alice"))),
            "untrusted: its signature by alice does not match its contents");
  EXPECT_EQ(verdict(TrustList(), signed_with(sealed_sample(), alice_)),
            "untrusted: it is signed by alice, which is not trusted");
}

TEST_F(Signatures, OfHostileNamesAreReportedInPrintableCharactersAndFew) {
  std::vector<Signature> signatures;
  for (char first = 'a'; first < 'k'; ++first)
    signatures.push_back({.signer = first + std::string("\x1b[31m\n\xff", 7) + std::string(200, 'x')});
  const std::string why = verdict(TrustList(), with_signatures(sealed_sample(), signatures).value());
  EXPECT_TRUE(why.starts_with("untrusted: it is signed by a??31m??xxx")) << why;
  EXPECT_TRUE(why.ends_with("xxx and 6 more, none of which is trusted")) << why;
  EXPECT_LT(why.size(), 400U);
}

TEST_F(Signatures, AreRefusedIfAnyBitOfTheEntryIsFlipped) {
  const auto trust = trusting({alice_.public_key()});
  for (const std::string& binary : {std::string("tiny"), std::string(500, 'a')}) {
    Sealed sealed = signed_with(sealed_sample("conv", 0, binary), alice_);
    const std::size_t body_bytes = examine_entry(sealed)->body.size();
    ASSERT_EQ(verdict(trust, sealed), "signed by alice");
    std::size_t cases = 0;
    for (std::size_t bit = 0; bit < 8 * sealed.size(); ++bit, ++cases) {
      const auto flip = [&] { sealed[bit / 8] ^= static_cast<std::byte>(1U << bit % 8); };
      flip();
      const std::string why = verdict(trust, sealed);
      ASSERT_TRUE(why.starts_with("damaged: ") || why.starts_with("untrusted: ")) << "bit " << bit << ": " << why;
      if (bit / 8 >= preamble_size && bit / 8 < preamble_size + body_bytes) {
        ASSERT_EQ(verdict(trust, with_right_checksum(sealed, body_bytes)),
                  "untrusted: its signature by alice does not match its contents")
            << "bit " << bit;
        ++cases;
      }
      flip();
    }
    std::printf("%zu flipped bits refused, 0 accepted\n", cases);
  }
}

TEST_F(Signatures, OfAnotherEntryAreRefused) {
  const auto trust = trusting({alice_.public_key()});
  const Sealed sealed = signed_with(sealed_sample("conv"), alice_);
  const auto signatures = examine_entry(sealed)->signatures;
  for (const Sealed& other : {sealed_sample("gemm"), sealed_sample("conv", 1), sealed_sample("conv", 0, "other")})
    EXPECT_EQ(verdict(trust, with_signatures(other, signatures).value()),
              "untrusted: its signature by alice does not match its contents");
}

TEST_F(Signatures, AreRefusedBeforeTheEntryIsUnpacked) {
  // The entry claims to unpack to the most that is allowed.
  Sealed sealed = signed_with(sealed_sample("conv", 0, std::string(500, 'a')), alice_);
  const std::size_t body_bytes = examine_entry(sealed)->body.size();
  const std::size_t raw_bytes_place = 192 + sample_entry("").facts.size() + 16;
  std::memcpy(sealed.data() + raw_bytes_place, &max_entry_bytes, sizeof max_entry_bytes);
  sealed = with_right_checksum(sealed, body_bytes);
  const std::string answer = fakes::in_child([&]() -> std::string {
    rusage before{};
    rusage after{};
    getrusage(RUSAGE_SELF, &before);
    const std::string why = verdict(trusting({alice_.public_key()}), sealed);
    getrusage(RUSAGE_SELF, &after);
    return after.ru_maxrss - before.ru_maxrss < 100'000 ? why : "it took memory: " + why;
  });
  EXPECT_EQ(answer, "untrusted: its signature by alice does not match its contents");
}

TEST_F(Signatures, OfSeveralSignersNeedOneTrustedKey) {
  const Sealed both = signed_with(signed_with(sealed_sample(), bob_), alice_);
  EXPECT_EQ(verdict(trusting({alice_.public_key()}), both), "signed by alice");
  EXPECT_EQ(verdict(trusting({bob_.public_key()}), both), "signed by bob");
  EXPECT_EQ(verdict(trusting({bob_.public_key(), alice_.public_key()}), both), "signed by alice");
  // Another key of alice's name does not stop the search.
  EXPECT_EQ(verdict(trusting({bob_.public_key(), new_key("alice").public_key()}), both), "signed by bob");
  EXPECT_TRUE(open_entry(both));
}

TEST_F(Signatures, AreReplacedByTheSameSignerAndKeptOfOthers) {
  const Sealed both = signed_with(signed_with(sealed_sample(), bob_), alice_);
  EXPECT_EQ(signed_with(both, alice_), both);
  const SigningKey next = new_key("alice");
  const Sealed renewed = signed_with(both, next);
  EXPECT_EQ(examine_entry(renewed)->signatures.size(), 2U);
  EXPECT_EQ(verdict(trusting({alice_.public_key()}), renewed),
            "untrusted: its signature by alice does not match its contents");
  EXPECT_EQ(verdict(trusting({next.public_key()}), renewed), "signed by alice");
  EXPECT_EQ(verdict(trusting({bob_.public_key()}), renewed), "signed by bob");
}

TEST_F(Signatures, OfTheOldAndTheNewKeyOfANameAreTrustedDuringRotation) {
  const SigningKey next = new_key("alice");
  const Sealed of_old = signed_with(sealed_sample(), alice_);
  const Sealed of_new = signed_with(sealed_sample(), next);
  const auto rotation = trusting({alice_.public_key(), next.public_key()});
  EXPECT_EQ(verdict(rotation, of_old), "signed by alice");
  EXPECT_EQ(verdict(rotation, of_new), "signed by alice");
  const auto after = trusting({alice_.public_key(), next.public_key()}, {alice_.public_key()});
  EXPECT_EQ(verdict(after, of_old), "untrusted: its signature by alice does not match its contents");
  EXPECT_EQ(verdict(after, of_new), "signed by alice");
}

TEST_F(Signatures, OfARevokedKeyAreRefusedWhateverItsName) {
  PublicKey renamed = alice_.public_key();
  renamed.name = "compromised-2026";
  const auto trust = trusting({alice_.public_key(), bob_.public_key()}, {renamed});
  EXPECT_EQ(trust.keys(), std::vector{bob_.public_key()});
  EXPECT_EQ(verdict(trust, signed_with(sealed_sample(), alice_)),
            "untrusted: it is signed by alice, which is not trusted");
}

TEST_F(Signatures, AreTriedSixteenTimesAtMost) {
  std::vector<SigningKey> keys;
  std::vector<PublicKey> trusted;
  for (int i = 0; i < 20; ++i) {
    keys.push_back(new_key(fakes::numbered("key", 10 + i)));
    trusted.push_back(keys.back().public_key());
  }
  const Sealed sealed = sealed_sample();
  // All signatures are false but one.
  const auto with_true = [&](std::size_t place) {
    const auto examined = examine_entry(sealed).value();
    std::vector<Signature> signatures;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      signatures.push_back({.signer = keys[i].name()});
      if (i == place) signatures.back() = keys[i].sign(examined).value();
    }
    return with_signatures(sealed, signatures).value();
  };
  EXPECT_EQ(verdict(trusting(trusted), with_true(15)), "signed by key_25");
  EXPECT_EQ(verdict(trusting(trusted), with_true(16)),
            "untrusted: none of its first 16 signatures by trusted keys matches its contents");
  // Those of strangers do not count.
  EXPECT_EQ(verdict(trusting({trusted[19]}), with_true(19)), "signed by key_29");
}

TEST_F(Signatures, AreNotForEntriesOfFormat2) {
  ExaminedEntry entry;
  entry.version = 2;
  EXPECT_EQ(alice_.sign(entry).error().code(), ErrorCode::unsupported);
  EXPECT_EQ(trusting({alice_.public_key()}).verify(entry).error().message(), "it has no signature");
}

TEST_F(Signatures, AreNotMadeForADamagedEntry) {
  Sealed sealed = sealed_sample();
  sealed.back() ^= std::byte{1};
  EXPECT_EQ(sign_entry(sealed, std::span(&alice_, 1)).error().code(), ErrorCode::damaged);
}

TEST_F(Signatures, AreMadeAndVerifiedByThreadsAtOnce) {
  const auto trust = trusting({alice_.public_key()});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 20; ++i)
        EXPECT_EQ(verdict(trust, signed_with(sealed_sample(fakes::numbered("key", 100 * t + i)), alice_)),
                  "signed by alice");
    });
  for (auto& thread : threads) thread.join();
}

TEST_F(Signatures, AreVerifiedByTheKeysOfAllFolders) {
  write(system() / trusted_keys_name, "# the build farm\n" + to_line(alice_.public_key()) + "\n");
  write(user() / trusted_keys_name, to_line(bob_.public_key()));
  auto trust = TrustList::read(folders());
  ASSERT_TRUE(trust) << trust.error().message();
  EXPECT_EQ(trust->keys(), (std::vector{alice_.public_key(), bob_.public_key()}));
  // Revocation in one folder wins over trust in another.
  write(user() / revoked_keys_name, to_line(alice_.public_key()));
  write(system() / revoked_keys_name, to_line(mallory_.public_key()));
  trust = TrustList::read(folders());
  ASSERT_TRUE(trust) << trust.error().message();
  EXPECT_EQ(trust->keys(), std::vector{bob_.public_key()});
}

TEST_F(Signatures, AreOfNoTrustedKeyWithoutFiles) {
  EXPECT_TRUE(TrustList::read(folders()).value().keys().empty());
  EXPECT_TRUE(TrustList::read({}).value().keys().empty());
}

TEST_F(Signatures, AreNotTrustedIfOthersCanWriteToAFileOrFolderOfKeys) {
  for (const char* name : {trusted_keys_name, revoked_keys_name})
    for (const auto& folder : {user(), system()}) {
      write(folder / name, to_line(alice_.public_key()));
      for (const mode_t mode : {0664U, 0646U}) {
        ASSERT_EQ(chmod((folder / name).c_str(), mode), 0);
        const auto trust = TrustList::read(folders());
        ASSERT_FALSE(trust);
        EXPECT_TRUE(trust.error().message().find("chmod go-w " + (folder / name).string()) != std::string::npos)
            << trust.error().message();
      }
      ASSERT_EQ(chmod((folder / name).c_str(), 0644), 0);
      ASSERT_EQ(chmod(folder.c_str(), 0777), 0);
      EXPECT_NE(message_of(TrustList::read(folders())).find(folder.string()), std::string::npos);
      ASSERT_EQ(chmod(folder.c_str(), 0755), 0);
      EXPECT_TRUE(TrustList::read(folders()));
    }
}

TEST_F(Signatures, AreNotTrustedIfAFileOfKeysBelongsToAnotherUserOrIsNone) {
  write(user() / trusted_keys_name, to_line(alice_.public_key()));
  const auto file = user() / trusted_keys_name;
  if (fakes::is_root()) {
    ASSERT_EQ(chown(file.c_str(), fakes::other_user, fakes::other_user), 0);
    EXPECT_NE(message_of(TrustList::read(folders())).find("belongs to another user"), std::string::npos);
  }
  std::filesystem::remove(file);
  std::filesystem::create_symlink(root_.path() / "elsewhere", file);
  EXPECT_NE(message_of(TrustList::read(folders())).find("symbolic link"), std::string::npos);
  std::filesystem::remove(file);
  ASSERT_EQ(mkfifo(file.c_str(), 0644), 0);
  EXPECT_NE(message_of(TrustList::read(folders())).find("not a regular file"), std::string::npos);
}

TEST_F(Signatures, AreNotTrustedIfALineOfKeysIsInvalid) {
  write(user() / revoked_keys_name, to_line(alice_.public_key()) + "\n\nalice:stolen\n");
  const auto trust = TrustList::read(folders());
  ASSERT_FALSE(trust);
  EXPECT_TRUE(trust.error().message().starts_with((user() / revoked_keys_name).string() + ": line 3 "))
      << trust.error().message();
}

TEST_F(Signatures, KeysHaveTheirPublicHalvesOfRfc8032) {
  const auto file = root_.path() / "rfc.key";
  fakes::write_file(file, std::string("rfc:nWGxne/9WmC6hEr0kuwsxERJxWl7MmkZcDusAxrn9/A=").replace(4, 44, [] {
    unsigned char encoded[45];
    const Digest seed =
        base::digest_from_hex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60").value();
    EVP_EncodeBlock(encoded, reinterpret_cast<const unsigned char*>(seed.bytes.data()), 32);
    return std::string(reinterpret_cast<const char*>(encoded));
  }()));
  ASSERT_EQ(chmod(file.c_str(), 0600), 0);
  const auto key = SigningKey::read(file);
  ASSERT_TRUE(key) << key.error().message();
  EXPECT_EQ(Digest{key->public_key().bytes}.hex(),
            "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a");
}

TEST(PublicKeys, ComeBackFromTheirLines) {
  const PublicKey one = new_key("ci@example.org").public_key();
  const PublicKey two = new_key("Build_farm-2.0").public_key();
  const auto keys =
      parse_keys("# keys\r\n\n  " + to_line(one) + "\t# since May\r\n \t \n" + to_line(two) + "\n" + to_line(one));
  ASSERT_TRUE(keys) << keys.error().message();
  EXPECT_EQ(*keys, (std::vector{one, two, one}));
  EXPECT_TRUE(parse_keys("").value().empty());
}

TEST(PublicKeys, OfAnInvalidLineAreAnErrorThatNamesTheLineAndQuotesNothing) {
  const std::string base64(42, 'A');
  for (const std::string& line :
       {std::string("x"), std::string(":"), "a:" + base64, "a:" + base64 + "A", "a:" + base64 + "AA",
        "a:" + base64 + "==", "a:" + base64 + "B=", ":" + base64 + "A=", "a b:" + base64 + "A=",
        "a/b:" + base64 + "A=", std::string(65, 'a') + ":" + base64 + "A=", "a: " + base64 + "A=",
        "a:" + base64 + "A= b", "a:" + base64 + "A=:", "a:" + std::string(41, 'A') + "-A=",
        std::string("a\0:", 3) + base64 + "A=", "a:" + base64 + "\xc3\xa9"}) {
    const auto keys = parse_keys("# first\n" + line + "\n");
    ASSERT_FALSE(keys) << line;
    EXPECT_TRUE(keys.error().message().starts_with("line 2 is not a key")) << keys.error().message();
    EXPECT_EQ(keys.error().message().find("AAAA"), std::string::npos) << keys.error().message();
  }
  EXPECT_TRUE(parse_keys(std::string(64, 'a') + ":" + base64 + "A="));
}

TEST(PublicKeys, AreBounded) {
  const std::string line = "a:" + std::string(43, 'A') + "=\n";
  std::string lines;
  for (int i = 0; i < 4096; ++i) lines += line;
  EXPECT_EQ(parse_keys(lines).value().size(), 4096U);
  EXPECT_FALSE(parse_keys(lines + line));
  EXPECT_TRUE(parse_keys(std::string(std::size_t{1} << 20, '\n')));
  EXPECT_FALSE(parse_keys(std::string((std::size_t{1} << 20) + 1, '\n')));
}

TEST(PublicKeys, HaveNamesOfPlainCharacters) {
  for (const char* name : {"a", "A-1", "me@host.example", "_", "..."}) EXPECT_TRUE(is_key_name(name)) << name;
  for (const std::string& name : {std::string(), std::string("a b"), std::string("a:b"), std::string("a/b"),
                                  std::string("ä"), std::string("a\n"), std::string(65, 'a')}) {
    EXPECT_FALSE(is_key_name(name)) << name;
    EXPECT_EQ(SigningKey::generate(name).error().code(), ErrorCode::invalid_request) << name;
  }
}

TEST_F(Signatures, KeysAreAddedOnceAndLeaveTheRestOfTheFile) {
  EXPECT_EQ(add_keys(user(), trusted_keys_name, std::vector{alice_.public_key()}).value(), 1U);
  EXPECT_EQ(mode_of(user()), 0700U);
  EXPECT_EQ(fakes::read_file(user() / trusted_keys_name), to_line(alice_.public_key()) + "\n");
  write(user() / trusted_keys_name, "# mine\n" + to_line(alice_.public_key()) + " # me");
  EXPECT_EQ(
      add_keys(user(), trusted_keys_name, std::vector{alice_.public_key(), bob_.public_key(), bob_.public_key()})
          .value(),
      1U);
  EXPECT_EQ(fakes::read_file(user() / trusted_keys_name),
            "# mine\n" + to_line(alice_.public_key()) + " # me\n" + to_line(bob_.public_key()) + "\n");
}

TEST_F(Signatures, KeysAreNotAddedToAFileThatIsNotTrusted) {
  write(user() / trusted_keys_name, "nonsense\n");
  EXPECT_FALSE(add_keys(user(), trusted_keys_name, std::vector{alice_.public_key()}));
  EXPECT_EQ(fakes::read_file(user() / trusted_keys_name), "nonsense\n");
  write(user() / trusted_keys_name, "");
  ASSERT_EQ(chmod((user() / trusted_keys_name).c_str(), 0666), 0);
  EXPECT_FALSE(add_keys(user(), trusted_keys_name, std::vector{alice_.public_key()}));
}

TEST_F(Signatures, KeysAddedByThreadsAtOnceAreAllKept) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([this, t] {
      for (int i = 0; i < 5; ++i) {
        const auto added = add_keys(user(), trusted_keys_name,
                                    std::vector{new_key(fakes::numbered("key", 10 * t + i)).public_key()});
        EXPECT_EQ(message_of(added), "no error");
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(read_key_file(user(), trusted_keys_name).value().size(), 20U);
}

TEST_F(Signatures, PrivateKeysComeBackFromTheirFiles) {
  const auto file = user() / private_keys_name / "alice.key";
  ASSERT_TRUE(alice_.write(file));
  EXPECT_EQ(mode_of(file), 0600U);
  EXPECT_EQ(mode_of(file.parent_path()), 0700U);
  EXPECT_EQ(mode_of(user()), 0700U);
  const auto read = SigningKey::read(file);
  ASSERT_TRUE(read) << read.error().message();
  EXPECT_EQ(read->public_key(), alice_.public_key());
  EXPECT_EQ(signed_with(sealed_sample(), *read), signed_with(sealed_sample(), alice_));
}

TEST_F(Signatures, PrivateKeysAreNotReplaced) {
  const auto file = root_.path() / "mine.key";
  ASSERT_TRUE(alice_.write(file));
  const auto again = bob_.write(file);
  ASSERT_FALSE(again);
  EXPECT_NE(again.error().message().find(file.string() + " exists already"), std::string::npos);
  EXPECT_EQ(SigningKey::read(file)->name(), "alice");
}

TEST_F(Signatures, PrivateKeysThatOthersCanReadAreRefused) {
  const auto file = root_.path() / "alice.key";
  ASSERT_TRUE(alice_.write(file));
  const std::string secret = fakes::read_file(file).substr(fakes::read_file(file).find("alice:") + 6, 43);
  for (const mode_t mode : {0640U, 0604U, 0644U, 0620U, 0602U, 0610U}) {
    ASSERT_EQ(chmod(file.c_str(), mode), 0);
    const auto key = SigningKey::read(file);
    ASSERT_FALSE(key) << mode;
    EXPECT_NE(key.error().message().find("chmod 600 " + file.string()), std::string::npos) << key.error().message();
    EXPECT_EQ(key.error().message().find(secret), std::string::npos);
  }
  ASSERT_EQ(chmod(file.c_str(), 0400), 0);
  EXPECT_TRUE(SigningKey::read(file));
  if (!fakes::is_root()) return;
  ASSERT_EQ(chown(file.c_str(), fakes::other_user, fakes::other_user), 0);
  EXPECT_NE(message_of(SigningKey::read(file)).find("another user"), std::string::npos);
}

TEST_F(Signatures, PrivateKeyFilesThatAreSomethingElseAreErrorsWithoutTheSecret) {
  const auto file = root_.path() / "alice.key";
  EXPECT_FALSE(SigningKey::read(file));
  ASSERT_TRUE(alice_.write(file));
  const std::string text = fakes::read_file(file);
  const std::string secret = text.substr(text.find("alice:") + 6, 43);
  for (const std::string& wrong : {std::string(), std::string("# nothing\n"), text + text, "alice:" + secret,
                                   "alice " + secret + "=", secret, std::string((1U << 20) + 1, ' ')}) {
    fakes::write_file(file, wrong);
    const auto key = SigningKey::read(file);
    ASSERT_FALSE(key);
    EXPECT_NE(key.error().message().find(file.string()), std::string::npos) << key.error().message();
    EXPECT_EQ(key.error().message().find(secret.substr(0, 8)), std::string::npos) << key.error().message();
  }
  std::filesystem::remove(file);
  ASSERT_EQ(mkfifo(file.c_str(), 0600), 0);
  EXPECT_NE(message_of(SigningKey::read(file)).find("not a regular file"), std::string::npos);
}

TEST_F(Signatures, PrivateKeysAreNotTakenForPublicOnes) {
  const auto file = root_.path() / "alice.key";
  ASSERT_TRUE(alice_.write(file));
  EXPECT_NE(message_of(parse_keys(fakes::read_file(file))).find("private key"), std::string::npos);
  EXPECT_FALSE(read_public_keys(file));
  write(root_.path() / "keys.txt", to_line(bob_.public_key()));
  EXPECT_EQ(read_public_keys(root_.path() / "keys.txt").value(), std::vector{bob_.public_key()});
}

TEST_F(Signatures, PrivateKeysOfTheUserFolderAllSign) {
  EXPECT_TRUE(signing_keys("", folders()).value().empty());
  EXPECT_TRUE(signing_keys("", {}).value().empty());
  const auto keys = user() / private_keys_name;
  ASSERT_TRUE(bob_.write(keys / "2.key"));
  ASSERT_TRUE(alice_.write(keys / "1.key"));
  write(root_.path() / "note", "");
  std::filesystem::copy(root_.path() / "note", keys / "note");
  auto found = signing_keys("", folders());
  ASSERT_TRUE(found) << found.error().message();
  ASSERT_EQ(found->size(), 2U);
  EXPECT_EQ((*found)[0].name(), "alice");
  EXPECT_EQ((*found)[1].name(), "bob");
  EXPECT_TRUE(signing_keys("none", folders()).value().empty());
  ASSERT_TRUE(mallory_.write(root_.path() / "m.key"));
  found = signing_keys((root_.path() / "m.key").string(), folders());
  ASSERT_EQ(found->size(), 1U);
  EXPECT_EQ((*found)[0].name(), "mallory");

  ASSERT_TRUE(new_key("alice").write(keys / "3.key"));
  EXPECT_NE(message_of(signing_keys("", folders())).find("have the name alice"), std::string::npos);
  std::filesystem::remove(keys / "3.key");
  ASSERT_EQ(chmod((keys / "1.key").c_str(), 0644), 0);
  EXPECT_NE(message_of(signing_keys("", folders())).find("1.key"), std::string::npos);
}

TEST_F(Signatures, PrivateKeysOfTheUserFolderAreSixteenAtMost) {
  const auto keys = user() / private_keys_name;
  for (int i = 0; i < 17; ++i)
    ASSERT_TRUE(new_key(fakes::numbered("k", i)).write(keys / fakes::numbered("k", i).append(".key")));
  EXPECT_NE(message_of(signing_keys("", folders())).find("17 private keys"), std::string::npos);
  std::filesystem::remove(keys / "k_0.key");
  EXPECT_EQ(signing_keys("", folders())->size(), 16U);
}

/// The folders of a process with these variables, each as text; "-" for no user folder.
std::string folders_with(const std::vector<std::pair<const char*, const char*>>& variables) {
  return fakes::in_child([&variables] {
    for (const char* name : {"HOME", "XDG_CONFIG_HOME", "XDG_CONFIG_DIRS"}) unsetenv(name);
    for (const auto& [name, value] : variables) setenv(name, value, 1);
    const ConfigFolders folders = config_folders();
    std::string text = folders.user ? folders.user->string() : "-";
    for (const auto& folder : folders.system) text += " " + folder.string();
    return text;
  });
}

TEST(ConfigFolders, ComeFromTheEnvironment) {
  EXPECT_EQ(folders_with({}), "- /etc/xdg/kiln");
  EXPECT_EQ(folders_with({{"HOME", "/home/ann"}}), "/home/ann/.config/kiln /etc/xdg/kiln");
  EXPECT_EQ(folders_with({{"HOME", "/home/ann"}, {"XDG_CONFIG_HOME", ""}, {"XDG_CONFIG_DIRS", ""}}),
            "/home/ann/.config/kiln /etc/xdg/kiln");
  EXPECT_EQ(folders_with({{"HOME", "/home/ann"}, {"XDG_CONFIG_HOME", "/ann"}, {"XDG_CONFIG_DIRS", "/a:/b/"}}),
            "/ann/kiln /a/kiln /b/kiln");
}

TEST(ConfigFolders, AreNeverRelative) {
  EXPECT_EQ(folders_with({{"HOME", "ann"}, {"XDG_CONFIG_DIRS", ":a:/b:../c::"}}), "- /b/kiln");
  EXPECT_EQ(folders_with({{"HOME", "/ann"}, {"XDG_CONFIG_HOME", "."}}), "/ann/.config/kiln /etc/xdg/kiln");
}

TEST(ConfigFolders, OfASetUidProgramDoNotExist) {
  if (fakes::is_set_uid_program()) {
    const ConfigFolders folders = config_folders();
    fakes::end_set_uid_program(!folders.user && folders.system.empty());
  }
  const fakes::TemporaryFolder folder;
  const std::string result = fakes::run_in_set_uid_program(folder.path(), {{"HOME", "/home/ann"}});
  if (result.starts_with("skipped")) GTEST_SKIP() << result;
  EXPECT_EQ(result, fakes::seen_in_set_uid_program);
}

}  // namespace
}  // namespace kiln::store
