#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include <epoxy/gl.h>

#include <kiln/slot.hpp>

#include "backend/clock.hpp"
#include "backend/opengl/launch.hpp"
#include "backend/opengl/lent_context.hpp"
#include "backend/opengl/program.hpp"
#include "backend/opengl/staging.hpp"
#include "backend/slot_base.hpp"

namespace kiln::opengl {

/// Timestamps that the device writes between pieces of work. Query objects are kept and reused. All functions
/// require that the context of the slot is current. The destructor deletes no query objects: call clear().
class Stamps {
 public:
  /// Starts again at 0. The device must have written all earlier timestamps.
  void reset() noexcept { count_ = 0; }
  /// Queues a timestamp, which the device writes when all earlier work has ended.
  void write();
  std::size_t count() const noexcept { return count_; }
  /// All timestamps. Call it after the work has ended.
  std::vector<std::uint64_t> read() const;
  /// Deletes the query objects.
  void clear();

 private:
  std::vector<GLuint> queries_;
  std::size_t count_ = 0;
};

/// A slot in a context that all slots of its thread share. OpenGL may begin with a piece as soon as it is queued.
class GlSlot final : public backend::SlotBase<GlBuffer, ShareGroup> {
 public:
  static Result<std::unique_ptr<Slot>> open(const std::shared_ptr<ShareGroup>& group, const DeviceInfo& device,
                                            bool tells_resets);
  /// Requires that the context is current. `tells_resets`: the context reports whether the GPU was reset.
  GlSlot(std::shared_ptr<ShareGroup> group, std::unique_ptr<const SlotContext> context, const DeviceInfo& device,
         bool tells_resets, Staging::Kind staging);
  ~GlSlot() override;

  Result<void> launch(kiln::Module& module, const Launch& launch) override;
  Result<void> submit() override;
  Result<bool> finished() override;
  Result<void> wait() override;
  std::vector<Ran> times() override { return ran_; }

 private:
  bool in_use() const noexcept override { return queued_ || fence_ != nullptr; }
  Result<std::span<std::byte>> allocate_staging(std::size_t bytes) override;
  Result<void> queue_copy(const Copy& copy) override;
  Result<void> queue_nothing() override;
  /// Calls `work`, which queues a piece and returns Result<void>, and queues a timestamp after it. Requires that
  /// the context is current.
  template <class Work>
  Result<void> queue(std::string_view doing, Work work);
  /// The program object for a launch.
  Result<GLuint> object_of(const LinkedProgram& program);
  /// Starts a submission if this is its first piece. Waits for the previous submission first.
  Result<void> begin_piece();
  /// Estimates the offset between the clocks of the device and the host.
  void set_clock();
  /// Waits for at most `nanoseconds`, and returns whether the work has ended. Requires that the context is current.
  Result<bool> ended_within(GLuint64 nanoseconds);

  const std::shared_ptr<ShareGroup> group_;
  const std::unique_ptr<const SlotContext> context_;
  const bool tells_resets_;
  Staging staging_;
  backend::Clock clock_;
  backend::Clock::Host::time_point clock_set_ = {};
  Stamps stamps_;
  std::vector<backend::Piece> pieces_;
  std::vector<Ran> ran_;
  UniformBuffers uniforms_;
  // The copies that launches use which are queued or in flight. Launches in one context may share a copy: OpenGL
  // changes its uniforms between them.
  std::vector<ProgramLoan> loans_;
  backend::Clock::Host::time_point begun_ = {};
  bool queued_ = false;
  // Signalled when the submitted work has ended; null once the end has been seen.
  GLsync fence_ = nullptr;
};

}  // namespace kiln::opengl
