#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include <kiln/backend.hpp>
#include <kiln/opengl.hpp>

#include "backend/opengl/share_group.hpp"

namespace kiln::opengl {

/// How Kiln lays out what the driver gave out; part of the identity, so that no other layout is ever met.
inline constexpr std::uint32_t binary_layout = 1;

/// A program object, deleted with this.
class LinkedProgram final : public Module {
 public:
  LinkedProgram(std::shared_ptr<ShareGroup> group, std::uint32_t id, std::string name, std::size_t bytes) noexcept
      : group_(std::move(group)), id_(id), name_(std::move(name)), bytes_(bytes) {}
  ~LinkedProgram() override { group_->delete_program(id_); }

  std::uint32_t id() const noexcept override { return id_; }
  const std::string& name() const noexcept override { return name_; }
  std::size_t bytes() const noexcept override { return bytes_; }
  /// The contexts in which the program object exists.
  const ShareGroup& group() const noexcept { return *group_; }

  /// What a launch must give the program.
  struct Signature {
    /// One more than the highest storage buffer that the program uses.
    std::uint32_t buffers = 0;
    /// The bytes of its uniform buffer 0.
    std::uint32_t parameter_bytes = 0;
  };
  /// Read at the first call, with a context of the group current.
  const Signature& signature() const;

 private:
  const std::shared_ptr<ShareGroup> group_;
  const std::uint32_t id_;
  const std::string name_;
  const std::size_t bytes_;
  mutable std::once_flag signature_read_;
  mutable Signature signature_;
};

/// Compiles and links a compute program; a context of the group is current.
Result<Compiled> compile_program(const std::shared_ptr<ShareGroup>& group, const Request& request);

/// Loads a linked program from its binary; a context of the group is current.
Result<std::unique_ptr<kiln::Module>> load_program(const std::shared_ptr<ShareGroup>& group, const Binary& binary);

}  // namespace kiln::opengl
